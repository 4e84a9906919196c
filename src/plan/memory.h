// Memory arithmetic shared by whoever plans, allocates or reports: one formula each. Bytes throughout.
#pragma once

#include <cstdint>

#include "plan/kv_format.h"
#include "spec/model_spec.h"

namespace sterling::plan {

// Tokens of a KV block: one tile of the attention kernels (kernels/contract.h), the unit of allocation and reuse.
constexpr std::int32_t kBlockTokens = 16;

std::int64_t kv_type_bytes(KvType type);

// K and V of one block of one full-attention layer, as stored: V is padded to 16 dims.
std::int64_t kv_block_layer_bytes(const ModelSpec& spec, KvType type);
// K and V of one token in all full-attention layers, as stored. Equals 2 * kv_heads * head_dim * element size * layers where
// head_dim is a multiple of 16.
std::int64_t kv_bytes_per_token(const ModelSpec& spec, KvType type);

// FP32 recurrent state and convolution window of one sequence, all linear-attention layers. 0 for models without them.
std::int64_t state_bytes_per_sequence(const ModelSpec& spec);
// Floats between rows of a stored recurrent state (value_dim padded to 16).
std::int32_t state_row_stride(const GdnSpec& gdn);

}  // namespace sterling::plan
