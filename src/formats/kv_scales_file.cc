#include "formats/kv_scales_file.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include "formats/json.h"
#include "formats/message.h"
#include "formats/object_reader.h"

namespace sterling::formats {
namespace {

namespace json = boost::json;

constexpr std::string_view kOwnFormat = "sterling-kv-scales";
constexpr std::int64_t kMostLayers = 4096;
constexpr std::int64_t kMostRanks = 1024;
constexpr std::size_t kMostHeads = 1024;
// Beyond these a scale is a fault of whoever made the file, and FP8 arithmetic leaves the normal FP32 numbers.
constexpr double kSmallest = 1e-30;
constexpr double kLargest = 1e30;

std::vector<float> values_of(const ObjectReader& layer, std::string_view key) {
  const std::vector<double> numbers = layer.numbers(key, kSmallest, kLargest);
  if (layer.status() && (numbers.empty() || numbers.size() > kMostHeads)) {
    layer.fail(key, fmt::format("holds {} values; accepted: 1 to {}", numbers.size(), kMostHeads));
  }
  std::vector<float> values;
  for (const double number : numbers) values.push_back(static_cast<float>(number));
  return values;
}

Expected<KvScalesFile> parse_own(const json::object& document, const std::string& name) {
  const ObjectReader root(document, name);
  root.integer("version", 1, 1);
  KvScalesFile result{name, "sterling", {}, {}};
  const json::value* layers = root.find("layers");
  if (layers == nullptr || !layers->is_array()) {
    root.fail("layers", "is missing or no array; accepted: [{\"layer\": N, \"k\": [scale…], \"v\": [scale…]}, …]");
    return root.status().error();
  }
  std::size_t index = 0;
  for (const json::value& entry : layers->get_array()) {
    const std::string path = fmt::format("layers[{}]", index++);
    if (!entry.is_object()) {
      return make_error(ErrorCode::kCorrupt,
                        fmt::format("{}: {}: expected an object, found {}", name, path, describe(entry)), name);
    }
    const ObjectReader layer(entry.get_object(), name, path);
    const std::int64_t number = layer.integer("layer", 0, kMostLayers - 1);
    KvScalesFile::Layer values{values_of(layer, "k"), values_of(layer, "v")};
    if (Status status = layer.status(); !status) return status.error();
    if (!result.layers.emplace(number, std::move(values)).second) {
      return make_error(ErrorCode::kCorrupt, fmt::format("{}: {}: layer {} stands there twice", name, path, number),
                        name);
    }
  }
  if (Status status = root.status(); !status) return status.error();
  return result;
}

// "12" → 12, within [0, most).
std::optional<std::int64_t> index_of(std::string_view text, std::int64_t most) {
  std::int64_t value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value >= most) return std::nullopt;
  return value;
}

Error wrong_key(const std::string& name, std::string_view path, std::string_view key, std::string_view what) {
  return make_error(ErrorCode::kCorrupt, fmt::format("{}: {}: the key {} is no {}", name, path, quote(key), what),
                    name);
}

Expected<KvScalesFile> parse_vllm(const json::object& document, const std::string& name) {
  const ObjectReader root(document, name);
  const ObjectReader cache = root.object("kv_cache");
  const std::string dtype = cache.string("dtype");
  const ObjectReader factors = cache.object("scaling_factor");
  if (Status status = root.status(); !status) return status.error();
  if (dtype != "float8_e4m3fn" && dtype != "fp8" && dtype != "fp8_e4m3") {
    return make_error(ErrorCode::kUnsupported,
                      fmt::format("{}: kv_cache.dtype: found {}; accepted: float8_e4m3fn", name, quote(dtype)), name);
  }
  KvScalesFile result{name, "vllm", {}, {}};
  std::map<std::int64_t, std::map<std::int64_t, float>> ranks;
  for (const auto& [rank_key, unused] : factors.json()) {
    const auto rank = index_of(rank_key, kMostRanks);
    if (!rank) return wrong_key(name, "kv_cache.scaling_factor", rank_key, "rank");
    const ObjectReader layers = factors.object(rank_key);
    if (Status status = layers.status(); !status) return status.error();
    for (const auto& [layer_key, unused_value] : layers.json()) {
      const auto layer = index_of(layer_key, kMostLayers);
      if (!layer)
        return wrong_key(name, fmt::format("kv_cache.scaling_factor.{}", std::string_view(rank_key)), layer_key,
                         "layer");
      ranks[*rank][*layer] = static_cast<float>(layers.number(layer_key, kSmallest, kLargest));
    }
    if (Status status = layers.status(); !status) return status.error();
  }
  if (ranks.empty() || ranks.rbegin()->first + 1 != static_cast<std::int64_t>(ranks.size())) {
    return make_error(
        ErrorCode::kCorrupt,
        fmt::format("{}: kv_cache.scaling_factor: expected ranks \"0\", \"1\", … without gaps, found {} of them", name,
                    ranks.size()),
        name);
  }
  for (auto& [rank, layers] : ranks) {
    for (const auto& [layer, value] : layers) result.layers[layer] = {{value}, {value}};
    result.ranks.push_back(std::move(layers));
  }
  if (result.ranks.size() == 1) result.ranks.clear();
  return result;
}

}  // namespace

Expected<KvScalesFile> parse_kv_scales(std::string_view text, const std::string& name) {
  auto document = parse_json_object(text, name);
  if (!document) return document.error();
  if (const json::value* format = document->if_contains("format")) {
    if (format->is_string() && format->get_string() == kOwnFormat) return parse_own(*document, name);
  }
  if (document->contains("kv_cache")) return parse_vllm(*document, name);
  return make_error(
      ErrorCode::kCorrupt,
      fmt::format("{}: is no file of K/V scales; accepted: Sterling's own (\"format\": \"{}\"), or vLLM's and SGLang's "
                  "(\"kv_cache\": {{\"dtype\", \"scaling_factor\"}})",
                  name, kOwnFormat),
      name);
}

Expected<KvScalesFile> read_kv_scales_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return make_error(ErrorCode::kNotFound, fmt::format("{}: cannot be read", path), path);
  std::ostringstream text;
  text << file.rdbuf();
  return parse_kv_scales(text.str(), path);
}

json::object kv_scales_json(const std::map<std::int64_t, KvScalesFile::Layer>& layers, const json::object& about) {
  json::object document;
  document["format"] = kOwnFormat;
  document["version"] = 1;
  bool per_head = false;
  json::array rows;
  const auto array_of = [](const std::vector<float>& values) {
    json::array array;
    for (const float value : values) array.push_back(static_cast<double>(value));
    return array;
  };
  for (const auto& [layer, values] : layers) {
    per_head = per_head || values.k.size() > 1 || values.v.size() > 1;
    rows.push_back(json::object{{"layer", layer}, {"k", array_of(values.k)}, {"v", array_of(values.v)}});
  }
  document["granularity"] = per_head ? "head" : "tensor";
  for (const auto& [key, value] : about) document.insert({{key, value}});
  document["layers"] = std::move(rows);
  return document;
}

json::object kv_scales_json_vllm(const std::map<std::int64_t, KvScalesFile::Layer>& layers, std::int64_t layer_count,
                                 std::int64_t tp, std::string_view model_type) {
  json::object factors;
  for (std::int64_t rank = 0; rank < tp; ++rank) {
    json::object by_layer;
    for (std::int64_t layer = 0; layer < layer_count; ++layer) {
      double value = 1.0;
      if (const auto found = layers.find(layer); found != layers.end()) {
        value = std::max(*std::max_element(found->second.k.begin(), found->second.k.end()),
                         *std::max_element(found->second.v.begin(), found->second.v.end()));
      }
      by_layer[std::to_string(layer)] = value;
    }
    factors[std::to_string(rank)] = std::move(by_layer);
  }
  json::object document;
  document["model_type"] = model_type;
  document["kv_cache"] = json::object{{"dtype", "float8_e4m3fn"}, {"scaling_factor", std::move(factors)}};
  return document;
}

}  // namespace sterling::formats
