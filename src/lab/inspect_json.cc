// `sterling inspect --json`: names are a contract with scripts.
#include <optional>
#include <string>

#include "lab/inspect.h"

namespace sterling::lab {
namespace {

namespace json = boost::json;

template <typename T>
json::value or_null(const std::optional<T>& value) {
  return value ? json::value(*value) : json::value(nullptr);
}

json::value text_or_null(const std::string& text) {
  return text.empty() ? json::value(nullptr) : json::value(text);
}

json::value weights_json(const std::optional<std::vector<WeightGroup>>& weights) {
  if (!weights) return nullptr;
  json::array rows;
  for (const WeightGroup& group : *weights) {
    json::object row;
    row["group"] = group.group;
    row["format"] = group.format;
    row["tensors"] = or_null(group.tensors);
    row["parameters"] = or_null(group.parameters);
    row["bytes"] = group.bytes;
    row["bits_per_weight"] =
        group.parameters.value_or(0) > 0
            ? json::value(static_cast<double>(group.bytes) * 8.0 / static_cast<double>(*group.parameters))
            : json::value(nullptr);
    rows.push_back(std::move(row));
  }
  return rows;
}

json::object kv_json(const KvCacheFacts& kv) {
  json::array sources;
  for (const formats::KvWishSource& source : kv.sources) {
    sources.push_back(json::object{{"file", source.file}, {"key", source.key}, {"value", source.value}});
  }
  json::object scales;
  scales["expected"] = kv.scales.expected;
  scales["found"] = or_null(kv.scales.found);
  scales["all_one"] = or_null(kv.scales.all_one);
  scales["min"] = or_null(kv.scales.min);
  scales["max"] = or_null(kv.scales.max);
  json::object object;
  object["wish"] = or_null(kv.wish);
  object["wish_sources"] = std::move(sources);
  object["sources_disagree"] = kv.sources_disagree;
  object["scales"] = std::move(scales);
  object["effective_by_default"] = kv.effective_by_default;
  return object;
}

json::array lint_json(const std::vector<LintFinding>& findings) {
  json::array array;
  for (const LintFinding& finding : findings) {
    json::object object;
    object["severity"] = lint_severity_name(finding.severity);
    object["code"] = finding.code;
    object["where"] = text_or_null(finding.where);
    object["message"] = finding.message;
    array.push_back(std::move(object));
  }
  return array;
}

}  // namespace

json::object inspection_json(const Inspection& inspection) {
  const ModelDimensions& dimensions = inspection.dimensions;
  json::object object;
  object["path"] = inspection.path;
  object["format"] = inspection.format;
  object["weights_present"] = inspection.weights_present;
  object["architecture"] = text_or_null(dimensions.architecture);
  object["model_type"] = text_or_null(dimensions.model_type);
  object["supported"] = inspection.supported;
  object["unsupported_reason"] = or_null(inspection.unsupported_reason);
  object["loadable"] = inspection.loadable;
  object["load_error"] = or_null(inspection.load_error);
  object["layers"] = or_null(dimensions.layers);
  object["full_attention_layers"] = or_null(dimensions.full_attention_layers);
  object["linear_attention_layers"] = or_null(dimensions.linear_attention_layers);
  object["sliding_attention_layers"] = or_null(dimensions.sliding_attention_layers);
  object["hidden_size"] = or_null(dimensions.hidden_size);
  object["vocab_size"] = or_null(dimensions.vocab_size);
  object["heads"] = or_null(dimensions.heads);
  object["kv_heads"] = or_null(dimensions.kv_heads);
  object["head_dim"] = or_null(dimensions.head_dim);
  object["experts"] = or_null(dimensions.experts);
  object["experts_per_token"] = or_null(dimensions.experts_per_token);
  object["mtp_layers"] = or_null(dimensions.mtp_layers);
  object["max_position_embeddings"] = or_null(dimensions.max_position_embeddings);

  const ParameterCounts& parameters = inspection.parameters;
  object["parameters"] = json::object{{"total", or_null(parameters.total)},
                                      {"text", or_null(parameters.text)},
                                      {"mtp", or_null(parameters.mtp)},
                                      {"vision", or_null(parameters.vision)},
                                      {"active_per_token", or_null(parameters.active_per_token)}};
  json::object bytes{{"total", nullptr}, {"text", nullptr}, {"mtp", nullptr}, {"vision", nullptr}};
  if (inspection.bytes) {
    bytes["total"] = inspection.bytes->total;
    bytes["text"] = inspection.bytes->text;
    bytes["mtp"] = inspection.bytes->mtp;
    bytes["vision"] = inspection.bytes->vision;
  }
  object["bytes"] = std::move(bytes);
  object["weights"] = weights_json(inspection.weights);
  object["kv_cache"] = kv_json(inspection.kv_cache);
  json::object per_token{{"bf16", nullptr}, {"fp8_e4m3", nullptr}, {"fp32", nullptr}};
  if (inspection.kv_bytes_per_token) {
    per_token["bf16"] = inspection.kv_bytes_per_token->bf16;
    per_token["fp8_e4m3"] = inspection.kv_bytes_per_token->fp8_e4m3;
    per_token["fp32"] = inspection.kv_bytes_per_token->fp32;
  }
  object["kv_bytes_per_token"] = std::move(per_token);
  object["state_bytes_per_sequence"] = or_null(inspection.state_bytes_per_sequence);
  object["lint"] = lint_json(inspection.lint);
  return object;
}

}  // namespace sterling::lab
