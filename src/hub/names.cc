#include "hub/names.h"

#include <algorithm>

#include <fmt/format.h>

#include "formats/message.h"

namespace sterling::hub {
namespace {

bool is_alnum(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

// The hub's own rules: letters, digits, '-', '_', '.'; neither end is '-' or '.'; "--" is the cache's separator and ".." a way out.
bool is_repo_part(std::string_view part) {
  if (part.empty() || part.size() > 96) return false;
  const auto inner = [](char c) { return is_alnum(c) || c == '-' || c == '_' || c == '.'; };
  if (!std::all_of(part.begin(), part.end(), inner)) return false;
  for (const char end : {part.front(), part.back()}) {
    if (end == '-' || end == '.') return false;
  }
  return part.find("--") == std::string_view::npos && part.find("..") == std::string_view::npos;
}

// What is wrong with a relative path; nullptr when nothing is.
const char* path_fault(std::string_view path) {
  constexpr std::size_t kMaxPath = 1024;
  constexpr std::size_t kMaxPart = 255;  // NAME_MAX of the usual file systems
  if (path.empty()) return "is empty";
  if (path.size() > kMaxPath) return "is longer than 1024 bytes";
  for (const char c : path) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return "has a control character";
    if (c == '\\') return "has a backslash";
  }
  if (!formats::is_valid_utf8(path)) return "is not UTF-8";
  std::size_t begin = 0;
  while (begin <= path.size()) {
    const std::size_t slash = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, slash - begin);
    if (part.empty()) return begin == 0 ? "is an absolute path" : "has an empty part";
    if (part == "." || part == "..") return "has a part \".\" or \"..\"";
    if (part.size() > kMaxPart) return "has a part longer than 255 bytes";
    begin = slash + 1;
  }
  return nullptr;
}

}  // namespace

bool is_hex(std::string_view text, std::size_t digits) {
  return text.size() == digits &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

Expected<ModelId> parse_model_id(std::string_view text) {
  const auto refuse = [&](std::string_view why) {
    return make_error(
        ErrorCode::kInvalidArgument,
        fmt::format("{} is no hub id: {}; accepted: ORG/NAME or ORG/NAME@REVISION", formats::quote(text), why),
        std::string(text));
  };
  ModelId id;
  const std::size_t at = text.find('@');
  std::string_view repo = text.substr(0, at);
  if (at != std::string_view::npos) {
    id.revision = std::string(text.substr(at + 1));
    if (const Status status = check_revision(id.revision); !status) return refuse(status.error().message);
  }
  const std::size_t slash = repo.find('/');
  if (slash != std::string_view::npos) {
    id.repo.org = std::string(repo.substr(0, slash));
    repo.remove_prefix(slash + 1);
    if (!is_repo_part(id.repo.org)) return refuse("the part before the slash is no name of a user or an organisation");
  }
  id.repo.name = std::string(repo);
  if (!is_repo_part(repo)) return refuse("letters, digits, '-', '_' and '.' make a name");
  return id;
}

Status check_revision(std::string_view revision) {
  if (const char* fault = path_fault(revision)) {
    return make_error(
        ErrorCode::kInvalidArgument,
        fmt::format("the revision {} {}; accepted: a branch, a tag or a commit hash", formats::quote(revision), fault));
  }
  return {};
}

Status check_repo_path(std::string_view path) {
  if (const char* fault = path_fault(path)) {
    return make_error(ErrorCode::kCorrupt,
                      fmt::format("the hub lists a file called {}, which {}; nothing was written for it",
                                  formats::quote(path), fault));
  }
  return {};
}

Expected<std::string> blob_name(std::string_view etag) {
  std::string_view name = etag;
  if (name.starts_with("W/")) name.remove_prefix(2);
  if (name.size() >= 2 && name.front() == '"' && name.back() == '"') name = name.substr(1, name.size() - 2);
  const auto allowed = [](char c) { return is_alnum(c) || c == '-' || c == '_' || c == '.'; };
  if (name.empty() || name.size() > 128 || !is_alnum(name.front()) || !std::all_of(name.begin(), name.end(), allowed) ||
      name.ends_with(".incomplete")) {
    return make_error(ErrorCode::kCorrupt,
                      fmt::format("the hub sends the ETag {}, which can't name a file; expected a hash in quotes",
                                  formats::quote(etag)));
  }
  return std::string(name);
}

}  // namespace sterling::hub
