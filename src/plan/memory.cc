#include "plan/memory.h"

namespace sterling::plan {
namespace {

std::int64_t round_up_16(std::int64_t n) {
  return (n + 15) / 16 * 16;
}

}  // namespace

std::int64_t kv_type_bytes(KvType type) {
  return type == KvType::kBf16 ? 2 : 4;
}

std::int64_t kv_block_layer_bytes(const ModelSpec& spec, KvType type) {
  const std::int64_t head_dim = spec.attention.head_dim;
  return spec.attention.kv_heads * kBlockTokens * (head_dim + round_up_16(head_dim)) * kv_type_bytes(type);
}

std::int64_t kv_bytes_per_token(const ModelSpec& spec, KvType type) {
  return kv_block_layer_bytes(spec, type) / kBlockTokens * spec.count(LayerKind::kFullAttention);
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
