// The hub's answers about a repository, as JSON from outside: checked in every field that is used. Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace sterling::hub {

struct ListedFile {
  std::string path;
  std::optional<std::int64_t> size;
  std::string hash;  // what the blob will be called: sha256 of a large file, git's hash of another; empty when not told
};

struct RevisionInfo {
  std::string commit;
  std::vector<ListedFile> files;  // names only
};

inline constexpr std::int64_t kMaxFileBytes = std::int64_t{1} << 50;
inline constexpr std::size_t kMaxFiles = 500'000;

// /api/models/ORG/NAME/revision/REV: "sha" and "siblings". `source` stands at the head of messages. kCorrupt: no JSON, a field of another
// type, a commit that is no hash. Paths are not judged here.
Expected<RevisionInfo> parse_revision(std::string_view json, std::string_view source);

// One page of /api/models/ORG/NAME/tree/REV?recursive=true: files with size and hash; folders are left out.
Expected<std::vector<ListedFile>> parse_tree_page(std::string_view json, std::string_view source);

// Every path is safe (hub/names.h), none is listed twice, none is a folder of another. kCorrupt names it.
Status check_paths(const std::vector<ListedFile>& files);

}  // namespace sterling::hub
