// How a row of K or V becomes what the cache stores. Baseline code whose bits don't depend on the CPU or on the thread's flush modes.
//
//   BF16   nearest even; subnormal inputs become zero with their sign, NaN a quiet NaN, too large ones infinity: as the kernels' packing does
//   FP32   the bits
//   E4M3, E5M2   code = round(clamp(x / scale)): the IEEE quotient in FP32, clamped to the largest finite value (448, 57344), rounded to
//          nearest even among all codes, subnormal ones included. Zero keeps its sign. Infinity is stored as the largest finite value, NaN
//          as a NaN code (E4M3 0x7F, E5M2 0x7E, with the sign). An FP32-subnormal x counts as zero; an FP32-subnormal quotient is far below
//          half of the smallest code (2^-10, 2^-17) and gives zero whether or not it was flushed.
//   E4M3 per token   scale = 2^e, the smallest with largest finite |x| <= 448 · 2^e, e in -117 … 119 (so that no decoded value is an FP32 or
//          BF16 subnormal and none overflows); 1 for a row without finite non-zero elements. Nothing clips, save beyond 448 · 2^119. Decoded values
//          are BF16 values: four significant bits, an exponent in range.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/contract.h"

namespace sterling::kernels {

struct KvCounts {
  std::int64_t clipped = 0;      // finite, rounds beyond the largest finite value
  std::int64_t underflowed = 0;  // not zero, stored as zero
  std::int64_t non_finite = 0;

  KvCounts& operator+=(const KvCounts& other);
};

// Bytes of an element.
std::size_t kv_element_bytes(KvCode code);

// Of kE4m3Token.
float token_scale(const float* row, int n);

// Elements of kv_element_bytes each. `scale` is normal, finite and positive; only FP8 looks at it.
void encode_kv(KvCode code, const float* row, int n, float scale, void* elements, KvCounts& counts);
// Without the scale: exact.
void decode_kv(KvCode code, const void* elements, int n, float* row);

}  // namespace sterling::kernels
