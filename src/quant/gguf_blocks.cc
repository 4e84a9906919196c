#include "quant/gguf_blocks.h"

#include <cstring>

#include "base/check.h"
#include "base/float_types.h"

namespace sterling::quant {

namespace {

float half_at(const std::uint8_t* p) {
  return to_float(fp16{static_cast<std::uint16_t>(p[0] | static_cast<unsigned>(p[1]) << 8)});
}

std::uint32_t word_at(const std::uint8_t* p) {
  return p[0] | static_cast<std::uint32_t>(p[1]) << 8 | static_cast<std::uint32_t>(p[2]) << 16 |
         static_cast<std::uint32_t>(p[3]) << 24;
}

void decode_q4_0(const std::uint8_t* p, float* out) {
  const float d = half_at(p);
  const std::uint8_t* q = p + 2;
  for (int j = 0; j < 16; ++j) {
    out[j] = d * static_cast<float>((q[j] & 0xf) - 8);
    out[j + 16] = d * static_cast<float>((q[j] >> 4) - 8);
  }
}

void decode_q4_1(const std::uint8_t* p, float* out) {
  const float d = half_at(p);
  const float m = half_at(p + 2);
  const std::uint8_t* q = p + 4;
  for (int j = 0; j < 16; ++j) {
    out[j] = d * static_cast<float>(q[j] & 0xf) + m;
    out[j + 16] = d * static_cast<float>(q[j] >> 4) + m;
  }
}

// The five-bit value of element j (low nibble) or j + 16 (high nibble).
int low_five(std::uint8_t q, std::uint32_t h, int j) {
  return (q & 0xf) | static_cast<int>((h >> j) & 1u) << 4;
}
int high_five(std::uint8_t q, std::uint32_t h, int j) {
  return (q >> 4) | static_cast<int>((h >> (j + 16)) & 1u) << 4;
}

void decode_q5_0(const std::uint8_t* p, float* out) {
  const float d = half_at(p);
  const std::uint32_t h = word_at(p + 2);
  const std::uint8_t* q = p + 6;
  for (int j = 0; j < 16; ++j) {
    out[j] = d * static_cast<float>(low_five(q[j], h, j) - 16);
    out[j + 16] = d * static_cast<float>(high_five(q[j], h, j) - 16);
  }
}

void decode_q5_1(const std::uint8_t* p, float* out) {
  const float d = half_at(p);
  const float m = half_at(p + 2);
  const std::uint32_t h = word_at(p + 4);
  const std::uint8_t* q = p + 8;
  for (int j = 0; j < 16; ++j) {
    out[j] = d * static_cast<float>(low_five(q[j], h, j)) + m;
    out[j + 16] = d * static_cast<float>(high_five(q[j], h, j)) + m;
  }
}

void decode_q8_0(const std::uint8_t* p, float* out) {
  const float d = half_at(p);
  for (int j = 0; j < 32; ++j) out[j] = d * static_cast<float>(static_cast<std::int8_t>(p[2 + j]));
}

struct ScaleAndMinimum {
  float scale;
  float minimum;
};

// Groups 0-3 have their six bits whole in s[g] and s[g + 4]; groups 4-7 have four low bits in the nibbles of s[g + 4] and
// their two high bits on top of the bytes of groups 0-3.
ScaleAndMinimum scale_and_minimum(const std::uint8_t* s, int g) {
  int scale = 0;
  int minimum = 0;
  if (g < 4) {
    scale = s[g] & 63;
    minimum = s[g + 4] & 63;
  } else {
    scale = (s[g + 4] & 0xf) | (s[g - 4] >> 6) << 4;
    minimum = (s[g + 4] >> 4) | (s[g] >> 6) << 4;
  }
  return {static_cast<float>(scale), static_cast<float>(minimum)};
}

void decode_q4_k(const std::uint8_t* p, float* out) {
  const float d = half_at(p);
  const float dmin = half_at(p + 2);
  const std::uint8_t* s = p + 4;
  const std::uint8_t* q = p + 16;
  for (int g = 0; g < 8; ++g) {
    const auto [scale, minimum] = scale_and_minimum(s, g);
    const float ds = d * scale;
    const float dm = dmin * minimum;
    const std::uint8_t* nibbles = q + 32 * (g / 2);
    const int shift = g % 2 == 0 ? 0 : 4;
    for (int l = 0; l < 32; ++l) out[32 * g + l] = ds * static_cast<float>((nibbles[l] >> shift) & 0xf) - dm;
  }
}

void decode_q5_k(const std::uint8_t* p, float* out) {
  const float d = half_at(p);
  const float dmin = half_at(p + 2);
  const std::uint8_t* s = p + 4;
  const std::uint8_t* h = p + 16;
  const std::uint8_t* q = p + 48;
  for (int g = 0; g < 8; ++g) {
    const auto [scale, minimum] = scale_and_minimum(s, g);
    const float ds = d * scale;
    const float dm = dmin * minimum;
    const std::uint8_t* nibbles = q + 32 * (g / 2);
    const int shift = g % 2 == 0 ? 0 : 4;
    for (int l = 0; l < 32; ++l) {
      const int value = ((nibbles[l] >> shift) & 0xf) | ((h[l] >> g) & 1) << 4;
      out[32 * g + l] = ds * static_cast<float>(value) - dm;
    }
  }
}

// Each half has 128 elements, 64 bytes of q, 32 of h, 8 scales. Its quarter k (32 elements) takes its low four bits from
// q[32 * (k % 2) + l], low nibble for k < 2, and its two high bits from bits 2k and 2k + 1 of h[l]; two scales per quarter.
void decode_q6_k(const std::uint8_t* p, float* out) {
  const float d = half_at(p + 208);
  for (int half = 0; half < 2; ++half) {
    const std::uint8_t* q = p + 64 * half;
    const std::uint8_t* h = p + 128 + 32 * half;
    const std::uint8_t* s = p + 192 + 8 * half;
    for (int k = 0; k < 4; ++k) {
      float* quarter = out + 128 * half + 32 * k;
      const int shift = k < 2 ? 0 : 4;
      for (int l = 0; l < 32; ++l) {
        const int value = ((q[32 * (k % 2) + l] >> shift) & 0xf) | ((h[l] >> (2 * k)) & 3) << 4;
        const float scale = d * static_cast<float>(static_cast<std::int8_t>(s[2 * k + l / 16]));
        quarter[l] = scale * static_cast<float>(value - 32);
      }
    }
  }
}

template <void (*kDecode)(const std::uint8_t*, float*)>
void each_block(DType dtype, const std::byte* bytes, std::int64_t blocks, float* out) {
  const DTypeLayout layout = dtype_layout(dtype);
  const auto* p = reinterpret_cast<const std::uint8_t*>(bytes);
  for (std::int64_t i = 0; i < blocks; ++i, p += layout.block_bytes, out += layout.block_elements) kDecode(p, out);
}

}  // namespace

void decode_blocks(DType dtype, const std::byte* bytes, std::int64_t blocks, float* out) {
  switch (dtype) {
    case DType::kQ4_0: return each_block<decode_q4_0>(dtype, bytes, blocks, out);
    case DType::kQ4_1: return each_block<decode_q4_1>(dtype, bytes, blocks, out);
    case DType::kQ5_0: return each_block<decode_q5_0>(dtype, bytes, blocks, out);
    case DType::kQ5_1: return each_block<decode_q5_1>(dtype, bytes, blocks, out);
    case DType::kQ8_0: return each_block<decode_q8_0>(dtype, bytes, blocks, out);
    case DType::kQ4_K: return each_block<decode_q4_k>(dtype, bytes, blocks, out);
    case DType::kQ5_K: return each_block<decode_q5_k>(dtype, bytes, blocks, out);
    case DType::kQ6_K: return each_block<decode_q6_k>(dtype, bytes, blocks, out);
    default: STERLING_CHECK(is_block_dtype(dtype));
  }
}

}  // namespace sterling::quant
