#include "plan/manifest.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "platform/sha256.h"

namespace sterling::plan {
namespace {

namespace json = boost::json;

// 128 bits tell manifests apart and still fit a header and a log line.
constexpr std::size_t kHashDigits = 32;

// Keys sorted at every level: the order in which code happens to build a document must not change its hash.
json::value canonical(const json::value& value) {
  if (value.is_array()) {
    json::array result;
    for (const json::value& entry : value.get_array()) result.push_back(canonical(entry));
    return result;
  }
  if (!value.is_object()) return value;
  std::vector<std::string> keys;
  for (const auto& entry : value.get_object()) keys.emplace_back(entry.key());
  std::sort(keys.begin(), keys.end());
  json::object result;
  for (const std::string& key : keys) result[key] = canonical(value.get_object().at(key));
  return result;
}

json::array scales_json(const std::vector<std::vector<float>>& scales) {
  json::array layers;
  for (const std::vector<float>& layer : scales) {
    json::array values;
    for (const float value : layer) values.push_back(static_cast<double>(value));
    layers.push_back(std::move(values));
  }
  return layers;
}

json::object kv_json(const Precision& precision) {
  json::object kv;
  kv["dtype"] = kv_format_name(precision.kv);
  kv["k"] = kv_type_name(precision.kv.k);
  kv["v"] = kv_type_name(precision.kv.v);
  kv["k_bits"] = kv_type_name_with_bits(precision.kv.k);
  kv["v_bits"] = kv_type_name_with_bits(precision.kv.v);
  kv["scales"] = json::object{{"state", kv_scale_state_name(precision.kv_scale_state)},
                              {"source", precision.kv_scale_source},
                              {"k", scales_json(precision.kv_scales.k)},
                              {"v", scales_json(precision.kv_scales.v)}};
  kv["unscaled_accepted"] = precision.unscaled_accepted;
  json::array layers;
  for (const std::string& layer : precision.unscaled_layers) layers.emplace_back(layer);
  kv["unscaled_layers"] = std::move(layers);
  return kv;
}

json::object metadata_json(const ManifestFacts& facts, const Precision& precision) {
  json::object metadata;
  if (facts.metadata.wish) {
    metadata["kv_cache_wish"] = *facts.metadata.wish;
  } else {
    metadata["kv_cache_wish"] = nullptr;
  }
  metadata["sources_disagree"] = facts.metadata.disagree;
  json::array places;
  for (const MetadataWish::Place& place : facts.metadata.places) {
    places.push_back(json::object{{"where", place.where}, {"text", place.text}});
  }
  metadata["sources"] = std::move(places);
  metadata["note"] = precision.metadata_note;
  return metadata;
}

json::object kernels_json(const ManifestFacts& facts) {
  json::object kernels;
  for (const auto& [operation, kernel] : facts.kernels) kernels[operation] = kernel;
  return kernels;
}

// Who asked is no part of what is computed: a flag and a file that say the same give the same hash.
json::array hashed_rows(const Precision& precision) {
  json::array rows;
  for (const PrecisionRow& row : precision.rows) {
    json::object object = precision_row_json(row);
    object.erase("requested");
    object.erase("requested_by");
    object.erase("reason");
    object.erase("scale_source");  // names files; the values stand in kv_cache.scales
    rows.push_back(std::move(object));
  }
  return rows;
}

}  // namespace

json::object precision_row_json(const PrecisionRow& row) {
  return {{"role", row.role},
          {"layers", row.layers},
          {"stored", row.stored},
          {"loaded", row.loaded},
          {"compute", row.compute},
          {"accumulate", row.accumulate},
          {"scale_granularity", row.granularity},
          {"scale_source", row.scale_source},
          {"requested", row.requested},
          {"requested_by", row.requested_by},
          {"effective", row.effective},
          {"reason", row.reason},
          {"bytes", row.bytes},
          {"bytes_per", row.bytes_per}};
}

json::object manifest_json(const ManifestFacts& facts, const Precision& precision) {
  json::object document;
  document["manifest_version"] = 1;
  document["hash"] = "";
  document["version"] = facts.version;
  document["model"] =
      json::object{{"name", facts.model}, {"architecture", facts.architecture}, {"fingerprint", facts.fingerprint}};
  document["isa"] = facts.isa;
  document["arithmetic"] = facts.arithmetic;
  document["kernels"] = kernels_json(facts);
  document["compute"] = precision.compute;
  document["kv_cache"] = kv_json(precision);
  document["metadata"] = metadata_json(facts, precision);
  json::array rows;
  for (const PrecisionRow& row : precision.rows) rows.push_back(precision_row_json(row));
  document["rows"] = std::move(rows);

  json::object hashed = document;
  hashed.erase("hash");
  hashed.erase("metadata");
  hashed["model"] = json::object{{"architecture", facts.architecture}, {"fingerprint", facts.fingerprint}};
  hashed["rows"] = hashed_rows(precision);
  hashed["kv_cache"].as_object()["scales"].as_object().erase("source");
  document["hash"] = platform::sha256(json::serialize(canonical(hashed))).substr(0, kHashDigits);
  return document;
}

std::string precision_table(const Precision& precision) {
  constexpr std::array<std::string_view, 8> kHeads{"role",    "layers", "stored", "loaded",
                                                   "compute", "sum",    "scales", "requested"};
  std::vector<std::array<std::string, 8>> cells;
  cells.emplace_back();
  for (std::size_t i = 0; i < kHeads.size(); ++i) cells[0][i] = kHeads[i];
  for (const PrecisionRow& row : precision.rows) {
    const std::string scales = row.granularity == "-" ? "-" : row.granularity + ", " + row.scale_source;
    const std::string requested = row.requested == "-" ? "-" : row.requested + " by " + row.requested_by;
    cells.push_back({row.role, row.layers, row.stored, row.loaded, row.compute, row.accumulate, scales, requested});
  }
  std::array<std::size_t, 8> widths{};
  for (const auto& line : cells) {
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text;
  for (std::size_t r = 0; r < cells.size(); ++r) {
    std::string line;
    for (std::size_t i = 0; i < widths.size(); ++i) line += fmt::format("{:<{}}  ", cells[r][i], widths[i]);
    line += r == 0 ? "reason" : precision.rows[r - 1].reason;
    text += line + "\n";
  }
  return text;
}

}  // namespace sterling::plan
