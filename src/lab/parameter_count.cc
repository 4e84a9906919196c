#include "lab/parameter_count.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "lab/announced_families.h"
#include "lab/inspect_dimensions.h"
#include "lab/inspect_weights.h"

namespace sterling::lab {
namespace {

namespace json = boost::json;

enum class Family { kLlama, kQwen2, kQwen3, kQwen3Moe, kMixtral, kQwen3Next, kQwen35, kQwen35Moe };

struct FamilyRow {
  std::string_view model_type;
  Family family;
};

constexpr std::array kFamilies{FamilyRow{"llama", Family::kLlama},
                               FamilyRow{"mistral", Family::kLlama},
                               FamilyRow{"qwen2", Family::kQwen2},
                               FamilyRow{"qwen3", Family::kQwen3},
                               FamilyRow{"qwen3_moe", Family::kQwen3Moe},
                               FamilyRow{"mixtral", Family::kMixtral},
                               FamilyRow{"qwen3_next", Family::kQwen3Next},
                               FamilyRow{"qwen3_5", Family::kQwen35},
                               FamilyRow{"qwen3_5_text", Family::kQwen35},
                               FamilyRow{"qwen3_5_moe", Family::kQwen35Moe},
                               FamilyRow{"qwen3_5_moe_text", Family::kQwen35Moe}};

// Bounds under which no sum below leaves 63 bits: a matrix has fewer than 2^41 elements, an expert fewer than 2^42.
constexpr std::int64_t kLargest = 1 << 20;                         // of a size, and of heads * head_dim
constexpr std::int64_t kMostExpertLayers = std::int64_t{1} << 18;  // layers * (experts + 1)

// Sizes as they come, with the first missing one remembered: a count with a hole is no count.
class Sizes {
 public:
  explicit Sizes(const json::object& object) : object_(object) {}
  std::int64_t operator()(std::string_view key) {
    const auto value = config_integer(object_, {key});
    if (!value || *value > kLargest) complete_ = false;
    return complete_ ? *value : 1;
  }
  bool flag(std::string_view key) const {
    const json::value* value = object_.if_contains(key);
    return value != nullptr && value->is_bool() && value->get_bool();
  }
  bool complete() const { return complete_; }

 private:
  const json::object& object_;
  bool complete_ = true;
};

struct LayerSizes {
  std::int64_t attention = 0;  // norms of the layer included
  std::int64_t linear_attention = 0;
  std::int64_t mlp = 0;         // dense
  std::int64_t moe_fixed = 0;   // router and shared expert
  std::int64_t moe_routed = 0;  // all experts
};

bool is_moe(Family family) {
  return family == Family::kQwen3Moe || family == Family::kMixtral || family == Family::kQwen3Next ||
         family == Family::kQwen35Moe;
}
bool is_hybrid(Family family) {
  return family == Family::kQwen3Next || family == Family::kQwen35 || family == Family::kQwen35Moe;
}

std::int64_t gdn_parameters(Sizes& size, std::int64_t hidden) {
  const std::int64_t value_heads = size("linear_num_value_heads");
  const std::int64_t value_dim = size("linear_value_head_dim");
  const std::int64_t value = value_heads * value_dim;
  const std::int64_t channels = 2 * size("linear_num_key_heads") * size("linear_key_head_dim") + value;
  return channels * hidden                            // in_proj_qkv
         + value * hidden * 2                         // in_proj_z, out_proj
         + value_heads * hidden * 2                   // in_proj_a, in_proj_b
         + channels * size("linear_conv_kernel_dim")  // conv1d
         + value_heads * 2                            // A_log, dt_bias
         + value_dim;                                 // norm
}

LayerSizes layer_sizes(Family family, Sizes& size, const ModelDimensions& dimensions) {
  LayerSizes layer;
  const std::int64_t hidden = size("hidden_size");
  const std::int64_t heads = size("num_attention_heads");
  const std::int64_t kv_heads = dimensions.kv_heads.value_or(1);
  const std::int64_t head_dim = dimensions.head_dim.value_or(1);
  const std::int64_t gate = is_hybrid(family) ? 2 : 1;  // q_proj also gives the output gate
  const std::int64_t norms = 2 * hidden;
  layer.attention = heads * head_dim * hidden * (gate + 1) + 2 * kv_heads * head_dim * hidden + norms;
  const bool qk_norm = family == Family::kQwen3 || family == Family::kQwen3Moe || is_hybrid(family);
  if (qk_norm) layer.attention += 2 * head_dim;
  if (family == Family::kQwen2) layer.attention += (heads + 2 * kv_heads) * head_dim;
  if (size.flag("attention_bias")) layer.attention += (heads + 2 * kv_heads) * head_dim + hidden;
  if (is_hybrid(family)) layer.linear_attention = gdn_parameters(size, hidden) + norms;
  if (!is_moe(family) || family == Family::kQwen3Next || family == Family::kQwen3Moe) {
    layer.mlp = 3 * size("intermediate_size") * hidden;
    if (size.flag("mlp_bias")) layer.mlp += 2 * size("intermediate_size") + hidden;
  }
  if (is_moe(family)) {
    const std::int64_t experts = dimensions.experts.value_or(0);
    const std::int64_t width = size(family == Family::kMixtral ? "intermediate_size" : "moe_intermediate_size");
    layer.moe_routed = 3 * width * hidden * experts;
    layer.moe_fixed = experts * hidden;
    if (is_hybrid(family)) layer.moe_fixed += 3 * size("shared_expert_intermediate_size") * hidden + hidden;
  }
  return layer;
}

// How many layers have experts; empty when the configuration says something that is not understood.
std::optional<std::int64_t> moe_layers(const json::object& text, Family family, std::int64_t layers) {
  if (!is_moe(family)) return 0;
  const std::int64_t step = config_integer(text, {"decoder_sparse_step"}).value_or(1);
  if (step < 1) return std::nullopt;
  if (const json::value* dense = text.if_contains("mlp_only_layers"); dense != nullptr && dense->is_array()) {
    if (!dense->get_array().empty() && step != 1) return std::nullopt;
    return layers / step - static_cast<std::int64_t>(dense->get_array().size());
  }
  return layers / step;
}

// The Qwen3.5 vision tower: patch embedding, learned positions, blocks, merger.
std::optional<std::int64_t> vision_parameters(const json::object& config) {
  const json::value* section = config.if_contains("vision_config");
  if (section == nullptr || !section->is_object()) return 0;
  Sizes size(section->get_object());
  const std::int64_t hidden = size("hidden_size");
  const std::int64_t inner = size("intermediate_size");
  const std::int64_t patch =
      size("in_channels") * size("temporal_patch_size") * size("patch_size") * size("patch_size");
  const std::int64_t merged = hidden * size("spatial_merge_size") * size("spatial_merge_size");
  const std::int64_t block = 4 * hidden * hidden + 4 * hidden + 2 * inner * hidden + inner + hidden + 4 * hidden;
  const std::int64_t merger = 2 * hidden + merged * merged + merged + size("out_hidden_size") * (merged + 1);
  const std::int64_t total =
      hidden * patch + hidden + size("num_position_embeddings") * hidden + size("depth") * block + merger;
  return size.complete() ? std::optional(total) : std::nullopt;
}

const Family* find_family(std::string_view model_type) {
  for (const FamilyRow& row : kFamilies) {
    if (row.model_type == model_type) return &row.family;
  }
  return nullptr;
}

ParameterCounts count_listed(const json::object& config, const ModelDimensions& dimensions) {
  ParameterCounts counts;
  const auto layout = list_family(config, dimensions);
  if (!layout) return counts;
  counts = {0, 0, 0, 0, {}};
  std::int64_t routed = 0;
  for (const auto& tensor : layout->tensors) {
    std::int64_t elements = 1;
    for (const std::int64_t extent : tensor.shape) elements *= extent;
    const std::string_view group = weight_group(tensor.name, *dimensions.layers, dimensions.mtp_layers.value_or(0) > 0);
    *counts.total += elements;
    *(group == "mtp" ? counts.mtp : group == "vision" ? counts.vision : counts.text) += elements;
    if (group == "routed_experts") routed += elements;
  }
  counts.active_per_token = active_parameters(*counts.text, routed, dimensions);
  return counts;
}

}  // namespace

ParameterCounts count_parameters(const json::object& config, const ModelDimensions& dimensions) {
  const Family* known = find_family(dimensions.model_type);
  if (known == nullptr) return count_listed(config, dimensions);
  if (!dimensions.layers || !dimensions.full_attention_layers || !dimensions.linear_attention_layers ||
      !dimensions.head_dim || !dimensions.kv_heads || !dimensions.heads) {
    return {};
  }
  if (*dimensions.heads > kLargest || *dimensions.kv_heads > kLargest || *dimensions.head_dim > kLargest ||
      std::max(*dimensions.heads, *dimensions.kv_heads) * *dimensions.head_dim > kLargest ||
      dimensions.experts.value_or(0) > kMostExpertLayers ||
      *dimensions.layers * (dimensions.experts.value_or(0) + 1) > kMostExpertLayers) {
    return {};
  }
  const Family family = *known;
  const json::object& text = text_config(config);
  Sizes size(text);
  const LayerSizes layer = layer_sizes(family, size, dimensions);
  const std::int64_t vocab = size("vocab_size");
  const std::int64_t hidden = size("hidden_size");
  const auto sparse = moe_layers(text, family, *dimensions.layers);
  if (!size.complete() || !sparse || *sparse < 0) return {};

  const json::value* outer = config.if_contains("tie_word_embeddings");
  const bool tied = outer != nullptr && outer->is_bool() ? outer->get_bool() : size.flag("tie_word_embeddings");
  const std::int64_t softmax_layers =
      *dimensions.full_attention_layers + dimensions.sliding_attention_layers.value_or(0);
  const std::int64_t routed = layer.moe_routed * *sparse;
  ParameterCounts counts;
  counts.text = vocab * hidden * (tied ? 1 : 2) + hidden + softmax_layers * layer.attention +
                *dimensions.linear_attention_layers * layer.linear_attention + (layer.moe_fixed * *sparse + routed) +
                (*dimensions.layers - *sparse) * layer.mlp;
  counts.mtp = 0;
  if (const std::int64_t heads = dimensions.mtp_layers.value_or(0); heads > 0) {
    // fc, the two norms before it and the last norm, and one full-attention layer with the family's MLP.
    const std::int64_t mlp = is_moe(family) ? layer.moe_fixed + layer.moe_routed : layer.mlp;
    counts.mtp = 2 * hidden * hidden + 3 * hidden + heads * (layer.attention + mlp);
  }
  counts.vision = vision_parameters(config);
  if (counts.vision) counts.total = *counts.text + *counts.mtp + *counts.vision;
  counts.active_per_token = active_parameters(*counts.text, routed, dimensions);
  return counts;
}

}  // namespace sterling::lab
