#include "plan/cache_shape.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"

namespace sterling::plan {
namespace {

Error does_not_divide(std::string_view what, std::int64_t count, std::int32_t ranks) {
  return make_error(ErrorCode::kInvalidArgument,
                    fmt::format("{} ranks can't share {} {}: one number has to divide the other", ranks, count, what),
                    "--tp");
}

// KV heads of one rank: a share, or one that several ranks hold.
Expected<std::int64_t> rank_kv_heads(std::int64_t kv_heads, std::int32_t ranks) {
  if (kv_heads % ranks != 0 && (kv_heads == 0 || ranks % kv_heads != 0)) {
    return does_not_divide("KV heads", kv_heads, ranks);
  }
  return std::max<std::int64_t>(1, kv_heads / ranks);
}

std::int64_t bytes_per_16(KvType type) {
  switch (type) {
    case KvType::kFp32: return 64;
    case KvType::kBf16: return 32;
    case KvType::kFp8E4m3:
    case KvType::kFp8E5m2:
    case KvType::kFp8E4m3Token: return 16;
  }
  STERLING_CHECK(false);
  return 0;
}

std::int64_t vector_bytes(std::int64_t elements, std::int64_t per_16) {
  return (elements * per_16 + 15) / 16;
}

}  // namespace

CacheShape cache_shape(const ModelSpec& spec) {
  CacheShape shape;
  shape.heads = spec.attention.heads;
  shape.max_position_embeddings = spec.max_position_embeddings;
  shape.attention.emplace();
  if (const std::int64_t layers = spec.count(LayerKind::kFullAttention); layers > 0) {
    shape.attention->push_back(
        {layers, spec.attention.kv_heads, spec.attention.head_dim, spec.attention.head_dim, false, 0});
  }
  if (spec.gdn) {
    shape.state = RecurrentCache{spec.count(LayerKind::kLinearAttention),
                                 spec.gdn->key_heads,
                                 spec.gdn->value_heads,
                                 spec.gdn->key_dim,
                                 spec.gdn->value_dim,
                                 spec.gdn->conv_kernel - 1};
  }
  return shape;
}

Expected<CacheShape> rank_slice(const CacheShape& shape, std::int32_t ranks) {
  CacheShape slice = shape;
  if (ranks < 1) return make_error(ErrorCode::kInvalidArgument, "there is at least one rank", "--tp");
  if (ranks == 1) return slice;
  if (shape.heads % ranks != 0) return does_not_divide("query heads", shape.heads, ranks);
  slice.heads = shape.heads / ranks;
  if (slice.attention) {
    for (AttentionCache& layer : *slice.attention) {
      if (layer.latent) continue;
      const auto heads = rank_kv_heads(layer.kv_heads, ranks);
      if (!heads) return heads.error();
      layer.kv_heads = *heads;
    }
  }
  if (slice.state) {
    RecurrentCache& state = *slice.state;
    if (state.key_heads % ranks != 0) return does_not_divide("linear-attention key heads", state.key_heads, ranks);
    if (state.value_heads % ranks != 0) {
      return does_not_divide("linear-attention value heads", state.value_heads, ranks);
    }
    state.key_heads /= ranks;
    state.value_heads /= ranks;
  }
  return slice;
}

Expected<ModelSpec> rank_slice(const ModelSpec& spec, std::int32_t ranks) {
  const auto shape = rank_slice(cache_shape(spec), ranks);
  if (!shape) return shape.error();
  ModelSpec slice = spec;
  slice.attention.heads = static_cast<std::int32_t>(shape->heads);
  if (!shape->attention->empty()) {
    slice.attention.kv_heads = static_cast<std::int32_t>(shape->attention->front().kv_heads);
  }
  if (slice.gdn) {
    slice.gdn->key_heads = static_cast<std::int32_t>(shape->state->key_heads);
    slice.gdn->value_heads = static_cast<std::int32_t>(shape->state->value_heads);
  }
  return slice;
}

KvStorage kv_storage(const KvFormat& format) {
  const auto scale = [](KvType type) { return std::int64_t{type == KvType::kFp8E4m3Token ? 4 : 0}; };
  return {kv_format_name(format), bytes_per_16(format.k), bytes_per_16(format.v), scale(format.k), scale(format.v)};
}

std::int64_t kv_bytes_per_token_layer(const AttentionCache& layer, const KvStorage& storage) {
  if (layer.latent) return vector_bytes(layer.k_dim, storage.k_bytes_per_16) + storage.k_scale_bytes;
  return layer.kv_heads * (vector_bytes(layer.k_dim, storage.k_bytes_per_16) + storage.k_scale_bytes +
                           vector_bytes(layer.v_dim, storage.v_bytes_per_16) + storage.v_scale_bytes);
}

std::int64_t kv_bytes_per_token(const CacheShape& shape, const KvStorage& storage) {
  std::int64_t bytes = 0;
  for (const AttentionCache& layer : *shape.attention) {
    if (layer.window == 0) bytes += layer.layers * kv_bytes_per_token_layer(layer, storage);
  }
  return bytes;
}

std::int64_t window_bytes_per_sequence(const CacheShape& shape, const KvStorage& storage) {
  std::int64_t bytes = 0;
  for (const AttentionCache& layer : *shape.attention) {
    bytes += layer.layers * kv_bytes_per_token_layer(layer, storage) * layer.window;
  }
  return bytes;
}

std::int64_t growing_layers(const CacheShape& shape) {
  std::int64_t layers = 0;
  for (const AttentionCache& layer : *shape.attention) layers += layer.window == 0 ? layer.layers : 0;
  return layers;
}

std::int64_t sliding_layers(const CacheShape& shape) {
  std::int64_t layers = 0;
  for (const AttentionCache& layer : *shape.attention) layers += layer.window > 0 ? layer.layers : 0;
  return layers;
}

std::int64_t state_bytes_per_layer(const RecurrentCache& state, std::int64_t conv_bytes) {
  return state.value_heads * state.key_dim * state.value_dim * 4 +
         state.conv_columns * state.conv_channels() * conv_bytes;
}

std::int64_t state_bytes_per_sequence(const CacheShape& shape, std::int64_t conv_bytes) {
  return shape.state ? state_bytes_per_layer(*shape.state, conv_bytes) * shape.state->layers : 0;
}

}  // namespace sterling::plan
