// Names that come from users and hubs, checked before any of them becomes part of a path or a URL. Pure functions, thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace sterling::hub {

// "org/name", or "name" alone for the oldest models of the hub.
struct RepoId {
  std::string org;  // may be empty
  std::string name;

  std::string text() const { return org.empty() ? name : org + "/" + name; }
  // The repository's folder in the cache: "models--org--name".
  std::string folder() const { return org.empty() ? "models--" + name : "models--" + org + "--" + name; }
};

struct ModelId {
  RepoId repo;
  std::string revision;  // empty: none given
};

// "org/name", "org/name@revision". kInvalidArgument with what is accepted.
Expected<ModelId> parse_model_id(std::string_view text);

// A branch, a tag, "refs/pr/1", a commit hash or its beginning: a relative path without tricks.
Status check_revision(std::string_view revision);

// A file name of a repository, "folder/file.json". Refused, as kCorrupt: absolute names, "." and "..", empty parts, backslashes,
// control characters, parts longer than 255 bytes, bytes that are not UTF-8.
Status check_repo_path(std::string_view path);

// An ETag header's value as the name of a blob: W/ and quotes gone, then letters, digits, '-', '_' and '.' only, starting with a letter
// or digit, at most 128. kCorrupt otherwise.
Expected<std::string> blob_name(std::string_view etag);

bool is_hex(std::string_view text, std::size_t digits);  // lower case
inline bool is_commit_hash(std::string_view text) {
  return is_hex(text, 40);
}

}  // namespace sterling::hub
