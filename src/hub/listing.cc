#include "hub/listing.h"

#include <algorithm>

#include <boost/json.hpp>
#include <fmt/format.h>

#include "formats/json.h"
#include "formats/message.h"
#include "hub/names.h"

namespace sterling::hub {
namespace {

namespace json = boost::json;

// A revision of a thousand shards takes 100 KB, one of kMaxFiles some 40 MB.
constexpr formats::JsonLimits kLimits{.max_bytes = std::size_t{64} << 20, .max_depth = 32};

Error wrong(std::string_view source, std::string_view where, std::string_view expected, const json::value* found) {
  return make_error(ErrorCode::kCorrupt,
                    fmt::format("{}: {}: expected {}, found {}", source, where, expected,
                                found == nullptr ? "nothing" : formats::describe(*found)),
                    std::string(where));
}

Expected<std::string> text_field(const json::object& object, std::string_view key, std::string_view source,
                                 const std::string& where) {
  const json::value* value = object.if_contains(key);
  if (value == nullptr || !value->is_string()) {
    return wrong(source, where + "." + std::string(key), "a string", value);
  }
  return std::string(value->get_string());
}

Expected<std::int64_t> size_field(const json::object& object, std::string_view source, const std::string& where) {
  const json::value* value = object.if_contains("size");
  if (value == nullptr || !value->is_int64() || value->get_int64() < 0 || value->get_int64() > kMaxFileBytes) {
    return wrong(source, where + ".size", fmt::format("an integer from 0 to {}", kMaxFileBytes), value);
  }
  return value->get_int64();
}

Expected<ListedFile> tree_file(const json::object& entry, std::string_view source, const std::string& where) {
  ListedFile file;
  auto path = text_field(entry, "path", source, where);
  if (!path) return path.error();
  file.path = std::move(*path);
  auto size = size_field(entry, source, where);
  if (!size) return size.error();
  file.size = *size;
  auto oid = text_field(entry, "oid", source, where);
  if (!oid) return oid.error();
  file.hash = std::move(*oid);
  const json::value* lfs = entry.if_contains("lfs");
  if (lfs == nullptr || lfs->is_null()) return file;
  if (!lfs->is_object()) return wrong(source, where + ".lfs", "an object", lfs);
  auto sum = text_field(lfs->get_object(), "oid", source, where + ".lfs");
  if (!sum) return sum.error();
  file.hash = sum->starts_with("sha256:") ? sum->substr(7) : *sum;
  auto lfs_size = size_field(lfs->get_object(), source, where + ".lfs");
  if (!lfs_size) return lfs_size.error();
  file.size = *lfs_size;
  return file;
}

}  // namespace

Expected<RevisionInfo> parse_revision(std::string_view text, std::string_view source) {
  auto object = formats::parse_json_object(text, source, kLimits);
  if (!object) return object.error();
  RevisionInfo info;
  const json::value* sha = object->if_contains("sha");
  if (sha == nullptr || !sha->is_string() || !is_commit_hash(sha->get_string())) {
    return wrong(source, "sha", "a commit hash of 40 hexadecimal digits", sha);
  }
  info.commit = std::string(sha->get_string());
  const json::value* siblings = object->if_contains("siblings");
  if (siblings == nullptr || siblings->is_null()) return info;
  if (!siblings->is_array()) return wrong(source, "siblings", "an array", siblings);
  const json::array& list = siblings->get_array();
  if (list.size() > kMaxFiles) {
    return make_error(ErrorCode::kCorrupt,
                      fmt::format("{}: siblings: {} files; at most {} are accepted", source, list.size(), kMaxFiles));
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string where = fmt::format("siblings[{}]", i);
    if (!list[i].is_object()) return wrong(source, where, "an object", &list[i]);
    auto name = text_field(list[i].get_object(), "rfilename", source, where);
    if (!name) return name.error();
    info.files.push_back({std::move(*name), std::nullopt, {}});
  }
  return info;
}

Expected<std::vector<ListedFile>> parse_tree_page(std::string_view text, std::string_view source) {
  auto document = formats::parse_json(text, source, kLimits);
  if (!document) return document.error();
  if (!document->is_array()) return wrong(source, "the page", "an array", &*document);
  std::vector<ListedFile> files;
  const json::array& list = document->get_array();
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string where = fmt::format("[{}]", i);
    if (!list[i].is_object()) return wrong(source, where, "an object", &list[i]);
    const json::object& entry = list[i].get_object();
    auto type = text_field(entry, "type", source, where);
    if (!type) return type.error();
    if (*type != "file") continue;
    auto file = tree_file(entry, source, where);
    if (!file) return file.error();
    files.push_back(std::move(*file));
  }
  return files;
}

Status check_paths(const std::vector<ListedFile>& files) {
  std::vector<std::string_view> paths;
  for (const ListedFile& file : files) {
    if (Status status = check_repo_path(file.path); !status) return status;
    paths.push_back(file.path);
  }
  std::sort(paths.begin(), paths.end());
  const auto listed = [&](std::string_view path) { return std::binary_search(paths.begin(), paths.end(), path); };
  for (std::size_t i = 0; i < paths.size(); ++i) {
    if (i > 0 && paths[i] == paths[i - 1]) {
      return make_error(ErrorCode::kCorrupt, fmt::format("the hub lists {} twice", formats::quote(paths[i])));
    }
    for (std::size_t slash = paths[i].find('/'); slash != std::string_view::npos;
         slash = paths[i].find('/', slash + 1)) {
      if (!listed(paths[i].substr(0, slash))) continue;
      return make_error(ErrorCode::kCorrupt,
                        fmt::format("the hub lists {} as a file and as the folder of {}",
                                    formats::quote(paths[i].substr(0, slash)), formats::quote(paths[i])));
    }
  }
  return {};
}

}  // namespace sterling::hub
