// Scalar storage types and their exact conversions. BF16 and FP16 are stored as their 16 bits in native byte order.
#pragma once

#include <bit>
#include <cstdint>

namespace sterling {

struct bf16 {
  std::uint16_t bits = 0;
};

// Exact: every BF16 value is an FP32 value.
inline float to_float(bf16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

// Round to nearest, ties to even; NaN becomes a quiet NaN with its sign; overflow becomes infinity. Subnormals are kept here;
// the kernels flush them (docs/numerics.md).
inline bf16 to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return bf16{static_cast<std::uint16_t>((bits >> 16) | 0x40u)};
  return bf16{static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

struct fp16 {
  std::uint16_t bits = 0;
};

// Exact, subnormals and infinities included.
inline float to_float(fp16 value) {
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000u) << 16;
  const std::uint32_t exponent = (value.bits >> 10) & 0x1fu;
  const std::uint32_t mantissa = value.bits & 0x3ffu;
  if (exponent == 0x1fu) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
  // Zero or subnormal: mantissa * 2^-24, both factors exact in FP32.
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
}

}  // namespace sterling
