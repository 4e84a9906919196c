// Memory arithmetic shared by whoever plans, allocates or reports: one formula each. Bytes throughout.
#pragma once

#include <cstdint>

#include "plan/kv_format.h"
#include "spec/model_spec.h"

namespace sterling::plan {

// Tokens of a KV block: one tile of the attention kernels (kernels/contract.h), the unit of allocation and reuse.
constexpr std::int32_t kBlockTokens = 16;

// Of one element.
std::int64_t kv_type_bytes(KvType type);
// Of the FP32 scale that lies beside each token and KV head, for types that have one; else 0.
std::int64_t kv_token_scale_bytes(KvType type);

// K or V of one block of one KV head, as stored. V is padded to 16 dims.
std::int64_t k_tile_bytes(const ModelSpec& spec, KvType type);
std::int64_t v_tile_bytes(const ModelSpec& spec, KvType type);
// K and V of one block of one full-attention layer, all KV heads.
std::int64_t kv_block_layer_bytes(const ModelSpec& spec, KvFormat format);
// K and V of one token in all full-attention layers, as stored. Equals (K element + V element size) * kv_heads * head_dim * layers where
// head_dim is a multiple of 16, and 4 * kv_heads * layers more for each of K and V that has a scale per token.
std::int64_t kv_bytes_per_token(const ModelSpec& spec, KvFormat format);

// FP32 recurrent state and convolution window of one sequence, all linear-attention layers. 0 for models without them.
std::int64_t state_bytes_per_sequence(const ModelSpec& spec);
// Floats between rows of a stored recurrent state (value_dim padded to 16).
std::int32_t state_row_stride(const GdnSpec& gdn);

}  // namespace sterling::plan
