#include "lab/cache_shape.h"

#include <optional>

#include "lab/inspect_dimensions.h"

namespace sterling::lab {
namespace {

namespace json = boost::json;

constexpr std::int64_t kLargestExtent = 1 << 16;

bool fits(const std::optional<std::int64_t>& value) {
  return value && *value <= kLargestExtent;
}

std::optional<std::vector<plan::AttentionCache>> read_attention(const json::object& text,
                                                                const ModelDimensions& dimensions) {
  if (!fits(dimensions.full_attention_layers)) return std::nullopt;
  const std::int64_t full = *dimensions.full_attention_layers;
  std::vector<plan::AttentionCache> layers;
  if (const auto rank = config_integer(text, {"kv_lora_rank"})) {
    const auto rotary = config_integer(text, {"qk_rope_head_dim"});
    if (!fits(rank) || !fits(rotary)) return std::nullopt;
    layers.push_back({full, 1, *rank + *rotary, 0, true, 0});
    return layers;
  }
  if (text.contains("global_head_dim") || text.contains("num_global_key_value_heads")) return std::nullopt;
  if (!fits(dimensions.kv_heads) || !fits(dimensions.head_dim)) return std::nullopt;
  if (full > 0) layers.push_back({full, *dimensions.kv_heads, *dimensions.head_dim, *dimensions.head_dim, false, 0});
  if (const std::int64_t sliding = dimensions.sliding_attention_layers.value_or(0); sliding > 0) {
    const auto window = config_integer(text, {"sliding_window"});
    if (!fits(window) || *window == 0) return std::nullopt;
    layers.push_back({sliding, *dimensions.kv_heads, *dimensions.head_dim, *dimensions.head_dim, false, *window});
  }
  return layers;
}

}  // namespace

plan::CacheShape read_cache_shape(const json::object& config, const ModelDimensions& dimensions) {
  const json::object& text = text_config(config);
  plan::CacheShape shape;
  shape.heads = fits(dimensions.heads) ? *dimensions.heads : 0;
  shape.max_position_embeddings = dimensions.max_position_embeddings.value_or(0);
  shape.attention = read_attention(text, dimensions);
  if (!dimensions.linear_attention_layers) {
    shape.state_known = false;
    return shape;
  }
  if (*dimensions.linear_attention_layers == 0) return shape;
  const auto key_heads = config_integer(text, {"linear_num_key_heads"});
  const auto value_heads = config_integer(text, {"linear_num_value_heads"});
  const auto key_dim = config_integer(text, {"linear_key_head_dim"});
  const auto value_dim = config_integer(text, {"linear_value_head_dim"});
  const auto kernel = config_integer(text, {"linear_conv_kernel_dim"});
  constexpr std::int64_t kMost = 4096;
  for (const auto& value : {key_heads, value_heads, key_dim, value_dim, kernel}) {
    if (!value || *value > kMost || *value < 1) shape.state_known = false;
  }
  if (!shape.state_known) return shape;
  shape.state = plan::RecurrentCache{
      *dimensions.linear_attention_layers, *key_heads, *value_heads, *key_dim, *value_dim, *kernel - 1};
  return shape;
}

}  // namespace sterling::lab
