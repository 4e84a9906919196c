#include "formats/safetensors_index.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>

#include "formats/json_drive.h"
#include "formats/message.h"

namespace sterling::formats {

namespace {

namespace json = boost::json;

constexpr std::size_t kMaxIndexBytes = std::size_t{256} << 20;
constexpr std::size_t kMaxShards = 10000;
constexpr std::size_t kMaxDepth = 16;

bool is_plain_shard_name(std::string_view name) {
  return name.size() <= 255 && name.ends_with(".safetensors") && !name.starts_with('.') &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

// Streams: an index of a large model names hundreds of thousands of tensors. Only weight_map, at depth 2, is looked at.
struct IndexHandler {
  static constexpr std::size_t max_object_size = std::numeric_limits<std::size_t>::max();
  static constexpr std::size_t max_array_size = std::numeric_limits<std::size_t>::max();
  static constexpr std::size_t max_key_size = std::numeric_limits<std::size_t>::max();
  static constexpr std::size_t max_string_size = std::numeric_limits<std::size_t>::max();

  IndexHandler(std::string_view document_text, std::string_view file_name) : document(document_text), file(file_name) {}

  bool on_document_begin(json::error_code&) { return true; }
  bool on_document_end(json::error_code&) { return true; }
  bool on_comment_part(json::string_view, json::error_code&) { return true; }
  bool on_comment(json::string_view, json::error_code&) { return true; }

  bool on_object_begin(json::error_code& ec) {
    if (depth >= 2 && in_map) return unexpected("an object", ec);
    ++depth;
    return true;
  }
  bool on_object_end(std::size_t, json::error_code&) {
    --depth;
    if (depth == 1) in_map = false;
    return true;
  }
  bool on_array_begin(json::error_code& ec) {
    if (!skipping()) return unexpected("an array", ec);
    ++depth;
    return true;
  }
  bool on_array_end(std::size_t, json::error_code&) {
    --depth;
    return true;
  }

  bool on_key_part(json::string_view s, std::size_t, json::error_code&) {
    text.append(s.data(), s.size());
    return true;
  }
  bool on_key(json::string_view s, std::size_t, json::error_code& ec) {
    const std::string_view key = whole(s);
    if (depth == 1) {
      in_map = key == "weight_map";
      if (in_map && map_seen) return fail("weight_map", "appears twice", ec);
      map_seen = map_seen || in_map;
    } else if (depth == 2 && in_map) {
      index.entries.push_back({keep(key), 0});
    }
    text.clear();
    return true;
  }

  bool on_string_part(json::string_view s, std::size_t, json::error_code&) {
    text.append(s.data(), s.size());
    return true;
  }
  bool on_string(json::string_view s, std::size_t, json::error_code& ec) {
    const std::string_view value = whole(s);
    if (depth == 2 && in_map) {
      const std::string_view tensor = index.entries.back().tensor;
      if (!is_plain_shard_name(value)) {
        return fail("weight_map",
                    fmt::format("tensor {} lies in {}; accepted: the name of a .safetensors file beside the index",
                                quote(tensor), quote(value)),
                    ec);
      }
      const auto [at, fresh] =
          shard_ids.try_emplace(std::string(value), static_cast<std::uint32_t>(index.shards.size()));
      if (fresh) index.shards.emplace_back(value);
      if (index.shards.size() > kMaxShards)
        return fail("weight_map", fmt::format("more than {} shards", kMaxShards), ec);
      index.entries.back().shard = at->second;
    } else if (!skipping()) {
      return unexpected("the string " + quote(value), ec);
    }
    text.clear();
    return true;
  }

  bool on_number_part(json::string_view, json::error_code&) { return true; }
  bool on_int64(std::int64_t value, json::string_view, json::error_code& ec) {
    return skipping() || unexpected(fmt::format("the number {}", value), ec);
  }
  bool on_uint64(std::uint64_t value, json::string_view, json::error_code& ec) {
    return skipping() || unexpected(fmt::format("the number {}", value), ec);
  }
  bool on_double(double value, json::string_view, json::error_code& ec) {
    return skipping() || unexpected(fmt::format("the number {}", value), ec);
  }
  bool on_bool(bool value, json::error_code& ec) { return skipping() || unexpected(value ? "true" : "false", ec); }
  bool on_null(json::error_code& ec) { return skipping() || unexpected("null", ec); }

  // In something other than the document itself and weight_map.
  bool skipping() const { return depth >= 1 && !in_map; }

  // The key or string whose last part is `s`.
  std::string_view whole(json::string_view s) {
    if (text.empty()) return {s.data(), s.size()};
    text.append(s.data(), s.size());
    return text;
  }
  // A key without escapes lies in the document and stays there; any other lies in our or the parser's buffer.
  std::string_view keep(std::string_view key) {
    const std::less<const char*> before;
    const bool in_document =
        !before(key.data(), document.data()) && before(key.data(), document.data() + document.size());
    return in_document ? key : std::string_view(index.escaped.emplace_back(key));
  }

  bool unexpected(std::string_view found, json::error_code& ec) {
    if (depth == 0) return fail("", fmt::format("expected a JSON object, found {}", found), ec);
    if (depth == 1) return fail("weight_map", fmt::format("expected an object, found {}", found), ec);
    return fail(
        "weight_map",
        fmt::format("tensor {}: expected the name of a file, found {}", quote(index.entries.back().tensor), found), ec);
  }
  bool fail(std::string_view place, std::string_view problem, json::error_code& ec) {
    error = place.empty() ? make_error(ErrorCode::kCorrupt, fmt::format("{}: {}", file, problem), std::string(file))
                          : make_error(ErrorCode::kCorrupt, fmt::format("{}: {}: {}", file, place, problem),
                                       fmt::format("{}:{}", file, place));
    ec = json::error::exception;
    return false;
  }

  std::string_view document;
  std::string_view file;
  std::optional<Error> error;
  SafetensorsIndex index;
  std::unordered_map<std::string, std::uint32_t> shard_ids;
  std::string text;  // parts of a key or string with escapes
  int depth = 0;
  bool in_map = false, map_seen = false;
};

Error index_error(std::string_view file, std::string problem) {
  return make_error(ErrorCode::kCorrupt, fmt::format("{}: {}", file, problem), fmt::format("{}:weight_map", file));
}

Expected<SafetensorsIndex> parse(std::string_view text, std::string_view file) {
  JsonLimits limits;
  limits.max_bytes = kMaxIndexBytes;
  limits.max_depth = kMaxDepth;
  json::parse_options options;
  options.max_depth = limits.max_depth;
  json::basic_parser<IndexHandler> parser(options, text, file);
  if (Status status = drive_json(parser, text, file, limits); !status) return status.error();
  if (!parser.handler().map_seen) return index_error(file, "weight_map is missing");

  SafetensorsIndex index = std::move(parser.handler().index);
  const auto by_name = [](const auto& a, const auto& b) { return a.tensor < b.tensor; };
  if (!std::is_sorted(index.entries.begin(), index.entries.end(), by_name)) {
    std::sort(index.entries.begin(), index.entries.end(), by_name);
  }
  const auto twice = std::adjacent_find(index.entries.begin(), index.entries.end(),
                                        [](const auto& a, const auto& b) { return a.tensor == b.tensor; });
  if (twice != index.entries.end())
    return index_error(file, fmt::format("weight_map: tensor {} appears twice", quote(twice->tensor)));
  if (index.entries.empty()) return index_error(file, "weight_map is empty");
  return index;
}

}  // namespace

Expected<SafetensorsIndex> parse_safetensors_index(std::string_view text, std::string_view file) {
  try {
    return parse(text, file);
  } catch (const std::exception& problem) {  // out of memory
    return make_error(ErrorCode::kResourceExhausted, fmt::format("{}: {}", file, problem.what()), std::string(file));
  }
}

Expected<std::vector<TensorView>> join_shards(const SafetensorsIndex& index, std::string_view file,
                                              std::span<std::vector<TensorView>> shards) {
  // Both sides are sorted, so each shard is walked once, in step with the index.
  std::vector<std::size_t> next(shards.size(), 0);
  std::vector<TensorView> tensors;
  tensors.reserve(index.entries.size());
  const auto unlisted = [&](const TensorView& tensor) {
    return index_error(file, fmt::format("does not list tensor {} of {}", quote(tensor.name), tensor.file));
  };
  for (const auto& [name, shard] : index.entries) {
    std::vector<TensorView>& source = shards[shard];
    std::size_t& at = next[shard];
    if (at < source.size() && source[at].name < name) return unlisted(source[at]);
    if (at == source.size() || source[at].name != name) {
      return index_error(file,
                         fmt::format("tensor {} is not in its shard {}", quote(name), quote(index.shards[shard])));
    }
    tensors.push_back(std::move(source[at++]));
  }
  for (std::size_t shard = 0; shard < shards.size(); ++shard) {
    if (next[shard] < shards[shard].size()) return unlisted(shards[shard][next[shard]]);
  }
  return tensors;
}

}  // namespace sterling::formats
