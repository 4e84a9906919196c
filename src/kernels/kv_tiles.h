// K and V tiles of 16 tokens (layout: contract.h): one token of one KV head in or out. Baseline code.
//
// BF16 forms round to nearest even and store subnormals as zero with their sign, NaN as a quiet NaN, as the kernels' packing does. FP32
// forms keep the bits. head_dim is even; slot is 0 … 15. Two slots may be written at once by two threads.
#pragma once

#include <cstddef>

namespace sterling::kernels {

// Bytes of one tile; element_bytes is 2 (BF16) or 4 (FP32).
std::size_t k_tile_bytes(int head_dim, int element_bytes);
std::size_t v_tile_bytes(int head_dim, int element_bytes);  // dims padded to 16

void write_k_bf16(void* tile, int slot, const float* row, int head_dim);
void write_v_bf16(void* tile, int slot, const float* row, int head_dim);
void write_k_f32(void* tile, int slot, const float* row, int head_dim);
void write_v_f32(void* tile, int slot, const float* row, int head_dim);

void read_k_bf16(const void* tile, int slot, float* row, int head_dim);
void read_v_bf16(const void* tile, int slot, float* row, int head_dim);
void read_k_f32(const void* tile, int slot, float* row, int head_dim);
void read_v_f32(const void* tile, int slot, float* row, int head_dim);

}  // namespace sterling::kernels
