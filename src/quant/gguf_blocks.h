// GGUF's block types: layouts, and decoding to FP32 exactly as the format defines it. Little endian; d, m, dmin are FP16.
// Every product and sum is one FP32 operation in the order written here; nothing is fused.
//
//   Q4_0  d, q[16]                     x = d * (q - 8)
//   Q4_1  d, m, q[16]                  x = d * q + m
//   Q5_0  d, h[4], q[16]               x = d * (q - 16)
//   Q5_1  d, m, h[4], q[16]            x = d * q + m
//   Q8_0  d, int8 q[32]                x = d * q
//     32 elements. Byte j of q holds element j in its low and element j + 16 in its high nibble; bit j of h is the fifth bit
//     of element j.
//   Q4_K  d, dmin, s[12], q[128]       x = (d * scale) * q - (dmin * minimum)
//   Q5_K  d, dmin, s[12], h[32], q[128]
//     256 elements in 8 groups of 32, two groups per 32 bytes of q: the even one in the low nibbles. Bit g of h[l] is the
//     fifth bit of element l of group g. s packs 8 scales and 8 minimums of 6 bits (scale_and_minimum in the .cc).
//   Q6_K  q[128], h[64], int8 s[16], d  x = (d * s) * (q - 32)
//     256 elements in 16 groups of 16 in two halves; see the .cc.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace sterling::quant {

// Decodes `blocks` consecutive blocks of a block type to blocks * block_elements floats.
void decode_blocks(DType dtype, const std::byte* bytes, std::int64_t blocks, float* out);

}  // namespace sterling::quant
