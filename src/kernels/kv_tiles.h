// K and V tiles of 16 tokens (layout: contract.h): one token of one KV head in or out. Baseline code; values and codes: kv_codes.h.
//
// head_dim is even; slot is 0 … 15. Two slots may be written at once by two threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/contract.h"
#include "kernels/kv_codes.h"

namespace sterling::kernels {

enum class KvSide { kK, kV };

// Bytes of one tile, the scales of its tokens included.
std::size_t k_tile_bytes(KvCode code, int head_dim);
std::size_t v_tile_bytes(KvCode code, int head_dim);  // dims padded to 16
std::size_t kv_tile_bytes(KvSide side, KvCode code, int head_dim);

// Encodes a row into its slot. `scale`: of FP8 without scales per token; kE4m3Token finds its own and stores it.
void write_kv_row(KvSide side, KvCode code, void* tile, int slot, const float* row, int head_dim, float scale,
                  KvCounts& counts);
// What is stored, as kv_codes.h lays elements out.
void read_kv_elements(KvSide side, KvCode code, const void* tile, int slot, void* elements, int head_dim);
// The scale that a token's codes are multiplied by: the stored one of kE4m3Token, `scale` of other FP8, else 1.
float read_kv_scale(KvSide side, KvCode code, const void* tile, int slot, int head_dim, float scale);
// Elements times scale, rounded once to FP32.
void read_kv_row(KvSide side, KvCode code, const void* tile, int slot, float* row, int head_dim, float scale);
// Flips bits of one stored element, `mask` as read_kv_elements shows it.
void flip_kv_bits(KvSide side, KvCode code, void* tile, int slot, int dim, std::uint32_t mask);

}  // namespace sterling::kernels
