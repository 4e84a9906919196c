#include "lab/inspect_dimensions.h"

#include <algorithm>
#include <limits>
#include <string>

#include "plan/memory.h"

namespace sterling::lab {
namespace {

namespace json = boost::json;

// Everything that is multiplied below stays under this, so that no product of a few overflows.
constexpr std::int64_t kLargest = std::int64_t{1} << 40;
constexpr std::int64_t kLargestLayerCount = 1 << 16;
constexpr std::int64_t kLargestExtent = 1 << 20;

const json::string* config_string(const json::object& config, std::string_view key) {
  const json::value* value = config.if_contains(key);
  return value != nullptr && value->is_string() ? &value->get_string() : nullptr;
}

struct LayerCounts {
  std::int64_t full = 0, linear = 0, sliding = 0, other = 0;
};

// layer_types of transformers; empty when absent or not a list of strings.
std::optional<LayerCounts> counts_from_layer_types(const json::object& text) {
  const json::value* types = text.if_contains("layer_types");
  if (types == nullptr || !types->is_array()) return std::nullopt;
  LayerCounts counts;
  for (const json::value& type : types->get_array()) {
    if (!type.is_string()) return std::nullopt;
    const std::string_view name = type.get_string();
    if (name == "full_attention") {
      ++counts.full;
    } else if (name == "linear_attention") {
      ++counts.linear;
    } else if (name == "sliding_attention") {
      ++counts.sliding;
    } else {
      ++counts.other;
    }
  }
  return counts;
}

// hybrid_override_pattern of Nemotron-H: M is a Mamba layer, * attention, - an MLP, E experts.
std::optional<LayerCounts> counts_from_pattern(const json::object& text) {
  const json::string* pattern = config_string(text, "hybrid_override_pattern");
  if (pattern == nullptr) return std::nullopt;
  LayerCounts counts;
  for (const char kind : *pattern) {
    if (kind == '*') {
      ++counts.full;
    } else if (kind == 'M') {
      ++counts.linear;
    } else {
      ++counts.other;
    }
  }
  return counts;
}

void count_layers(const json::object& text, ModelDimensions& dimensions) {
  if (!dimensions.layers) return;
  std::optional<LayerCounts> counts = counts_from_layer_types(text);
  if (!counts) counts = counts_from_pattern(text);
  if (counts) {
    // A list that contradicts num_hidden_layers proves nothing.
    if (counts->full + counts->linear + counts->sliding + counts->other != *dimensions.layers) return;
    dimensions.full_attention_layers = counts->full;
    dimensions.linear_attention_layers = counts->linear;
    dimensions.sliding_attention_layers = counts->sliding;
    return;
  }
  if (config_integer(text, {"linear_num_value_heads"})) {  // Qwen3-Next and Qwen3.5: every n-th layer is full attention
    const std::int64_t interval =
        std::max<std::int64_t>(1, config_integer(text, {"full_attention_interval"}).value_or(4));
    dimensions.full_attention_layers = *dimensions.layers / interval;
    dimensions.linear_attention_layers = *dimensions.layers - *dimensions.full_attention_layers;
    dimensions.sliding_attention_layers = 0;
    return;
  }
  // A window without a list of layers: which of them slide is the family's secret, unless the window is switched off.
  const json::value* use = text.if_contains("use_sliding_window");
  const bool off = use != nullptr && use->is_bool() && !use->get_bool();
  if (config_integer(text, {"sliding_window"}) && !off) return;
  dimensions.full_attention_layers = dimensions.layers;
  dimensions.linear_attention_layers = 0;
  dimensions.sliding_attention_layers = 0;
}

bool fits(const std::optional<std::int64_t>& value, std::int64_t largest) {
  return value && *value <= largest;
}

}  // namespace

const json::object& text_config(const json::object& config) {
  const json::value* text = config.if_contains("text_config");
  return text != nullptr && text->is_object() ? text->get_object() : config;
}

std::optional<std::int64_t> config_integer(const json::object& config, std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    const json::value* value = config.if_contains(key);
    if (value == nullptr) continue;
    std::int64_t number = -1;
    if (value->is_int64()) {
      number = value->get_int64();
    } else if (value->is_uint64() && value->get_uint64() <= static_cast<std::uint64_t>(kLargest)) {
      number = static_cast<std::int64_t>(value->get_uint64());
    }
    if (number >= 0 && number <= kLargest) return number;
  }
  return std::nullopt;
}

ModelDimensions read_dimensions(const json::object& config) {
  const json::object& text = text_config(config);
  ModelDimensions dimensions;
  if (const json::value* names = config.if_contains("architectures");
      names != nullptr && names->is_array() && !names->get_array().empty() && names->get_array()[0].is_string()) {
    dimensions.architecture = std::string(names->get_array()[0].get_string());
  }
  if (const json::string* type = config_string(config, "model_type")) dimensions.model_type = std::string(*type);
  dimensions.layers = config_integer(text, {"num_hidden_layers", "n_layer"});
  if (!fits(dimensions.layers, kLargestLayerCount)) dimensions.layers.reset();
  dimensions.hidden_size = config_integer(text, {"hidden_size", "n_embd"});
  dimensions.vocab_size = config_integer(text, {"vocab_size"});
  dimensions.intermediate_size = config_integer(text, {"intermediate_size"});
  dimensions.heads = config_integer(text, {"num_attention_heads", "n_head"});
  dimensions.kv_heads = config_integer(text, {"num_key_value_heads"});
  if (!dimensions.kv_heads) dimensions.kv_heads = dimensions.heads;
  dimensions.head_dim = config_integer(text, {"head_dim"});
  if (!dimensions.head_dim && dimensions.hidden_size && dimensions.heads.value_or(0) > 0 &&
      *dimensions.hidden_size % *dimensions.heads == 0 && !text.contains("kv_lora_rank")) {
    dimensions.head_dim = *dimensions.hidden_size / *dimensions.heads;
  }
  dimensions.experts = config_integer(text, {"num_experts", "num_local_experts", "n_routed_experts"}).value_or(0);
  dimensions.experts_per_token =
      *dimensions.experts == 0
          ? 0
          : config_integer(text, {"num_experts_per_tok", "experts_per_token", "top_k_experts", "moe_topk"});
  dimensions.mtp_layers =
      config_integer(text, {"mtp_num_hidden_layers", "num_nextn_predict_layers", "num_mtp_modules"}).value_or(0);
  dimensions.max_position_embeddings = config_integer(text, {"max_position_embeddings", "n_positions"});
  count_layers(text, dimensions);
  return dimensions;
}

KvBytesPerToken kv_bytes_per_token(const ModelSpec& spec) {
  const auto of = [&spec](plan::KvType type) { return plan::kv_bytes_per_token(spec, {type, type}); };
  return {of(plan::KvType::kBf16), of(plan::KvType::kFp8E4m3), of(plan::KvType::kFp32)};
}

std::optional<KvBytesPerToken> kv_bytes_per_token(const json::object& config, const ModelDimensions& dimensions) {
  const json::object& text = text_config(config);
  if (!dimensions.full_attention_layers) return std::nullopt;
  if (const auto rank =
          config_integer(text, {"kv_lora_rank"})) {  // MLA: one latent vector and the rotary key, shared by all heads
    const auto rotary = config_integer(text, {"qk_rope_head_dim"});
    if (!fits(rank, kLargestExtent) || !fits(rotary, kLargestExtent)) return std::nullopt;
    const std::int64_t elements = (*rank + *rotary) * *dimensions.full_attention_layers;
    return KvBytesPerToken{elements * 2, elements, elements * 4};
  }
  // Families whose full-attention layers have sizes of their own (Gemma 4) are not described by one head_dim.
  if (text.contains("global_head_dim") || text.contains("num_global_key_value_heads")) return std::nullopt;
  if (!fits(dimensions.kv_heads, kLargestLayerCount) || !fits(dimensions.head_dim, kLargestLayerCount))
    return std::nullopt;
  ModelSpec spec;
  spec.attention.kv_heads = static_cast<std::int32_t>(*dimensions.kv_heads);
  spec.attention.head_dim = static_cast<std::int32_t>(*dimensions.head_dim);
  spec.layers.assign(static_cast<std::size_t>(*dimensions.full_attention_layers), LayerKind::kFullAttention);
  return kv_bytes_per_token(spec);
}

std::optional<std::int64_t> state_bytes_per_sequence(const json::object& config, const ModelDimensions& dimensions) {
  if (!dimensions.linear_attention_layers) return std::nullopt;
  if (*dimensions.linear_attention_layers == 0) return 0;
  const json::object& text = text_config(config);
  const auto key_heads = config_integer(text, {"linear_num_key_heads"});
  const auto value_heads = config_integer(text, {"linear_num_value_heads"});
  const auto key_dim = config_integer(text, {"linear_key_head_dim"});
  const auto value_dim = config_integer(text, {"linear_value_head_dim"});
  const auto kernel = config_integer(text, {"linear_conv_kernel_dim"});
  constexpr std::int64_t kMost = 4096;
  if (!fits(key_heads, kMost) || !fits(value_heads, kMost) || !fits(key_dim, kMost) || !fits(value_dim, kMost) ||
      !fits(kernel, kMost) || *kernel < 1) {
    return std::nullopt;
  }
  ModelSpec spec;
  spec.gdn = GdnSpec{};
  spec.gdn->key_heads = static_cast<std::int32_t>(*key_heads);
  spec.gdn->value_heads = static_cast<std::int32_t>(*value_heads);
  spec.gdn->key_dim = static_cast<std::int32_t>(*key_dim);
  spec.gdn->value_dim = static_cast<std::int32_t>(*value_dim);
  spec.gdn->conv_kernel = static_cast<std::int32_t>(*kernel);
  spec.layers.assign(static_cast<std::size_t>(*dimensions.linear_attention_layers), LayerKind::kLinearAttention);
  return plan::state_bytes_per_sequence(spec);
}

}  // namespace sterling::lab
