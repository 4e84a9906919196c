// Stored K and V elements from the layout of their bits: the proof's own reading, which shares no code with the backend's encoders, decoders
// and kernels. Slow and plain on purpose.
//
//   BF16 1-8-7, bias 127; FP32 1-8-23; E4M3 1-4-3, bias 7, no infinities, S.1111.111 is NaN, largest 448; E5M2 1-5-2, bias 15, largest 57344
//   (OCP 8-bit Floating Point Specification 1.0)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "plan/kv_format.h"

namespace sterling::proof {

std::size_t element_bytes(plan::KvType type);

// Element `index` of bytes as Backend::read_kv_raw gives them.
std::uint32_t element_bits(plan::KvType type, std::span<const std::byte> bytes, std::size_t index);

// Exact; NaN for NaN codes.
double decode_bits(plan::KvType type, std::uint32_t bits);

// The code that docs/numerics.md prescribes for `x`: nearest, ties to even; FP8 divides by `scale` in FP32 first and saturates; BF16 flushes
// subnormals. `x` is finite.
std::uint32_t expected_bits(plan::KvType type, float x, float scale);

// Of fp8_e4m3_token: the smallest power of two, 2^-117 … 2^119, with max |x| <= 448 scale; 1 for a row of zeros.
float expected_token_scale(std::span<const float> row);

// Half a unit in the last place of normal numbers, relative to their power of two: 2^-8, 0, 2^-4, 2^-3, 2^-4. No rounding error of a normal
// number is larger.
double rounding_unit(plan::KvType type);

}  // namespace sterling::proof
