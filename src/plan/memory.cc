#include "plan/memory.h"

namespace sterling::plan {
namespace {

std::int64_t round_up_16(std::int64_t n) {
  return (n + 15) / 16 * 16;
}

}  // namespace

std::int64_t kv_type_bytes(KvType type) {
  switch (type) {
    case KvType::kBf16: return 2;
    case KvType::kFp32: return 4;
    case KvType::kFp8E4m3:
    case KvType::kFp8E5m2:
    case KvType::kFp8E4m3Token: return 1;
  }
  return 0;
}

std::int64_t kv_token_scale_bytes(KvType type) {
  return type == KvType::kFp8E4m3Token ? 4 : 0;
}

std::int64_t k_tile_bytes(const ModelSpec& spec, KvType type) {
  return kBlockTokens * (spec.attention.head_dim * kv_type_bytes(type) + kv_token_scale_bytes(type));
}

std::int64_t v_tile_bytes(const ModelSpec& spec, KvType type) {
  return kBlockTokens * (round_up_16(spec.attention.head_dim) * kv_type_bytes(type) + kv_token_scale_bytes(type));
}

std::int64_t kv_block_layer_bytes(const ModelSpec& spec, KvFormat format) {
  return spec.attention.kv_heads * (k_tile_bytes(spec, format.k) + v_tile_bytes(spec, format.v));
}

std::int64_t kv_bytes_per_token(const ModelSpec& spec, KvFormat format) {
  return kv_block_layer_bytes(spec, format) / kBlockTokens * spec.count(LayerKind::kFullAttention);
}

std::int32_t state_row_stride(const GdnSpec& gdn) {
  return static_cast<std::int32_t>(round_up_16(gdn.value_dim));
}

std::int64_t state_bytes_per_sequence(const ModelSpec& spec) {
  if (!spec.gdn) return 0;
  const GdnSpec& gdn = *spec.gdn;
  const std::int64_t recurrent = std::int64_t{gdn.value_heads} * gdn.key_dim * state_row_stride(gdn);
  const std::int64_t window = std::int64_t{gdn.conv_kernel - 1} * gdn.conv_channels();
  return (recurrent + window) * 4 * spec.count(LayerKind::kLinearAttention);
}

}  // namespace sterling::plan
