#include "proof/kv_codec.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace sterling::proof {
namespace {

using plan::KvType;

constexpr float kSmallestNormal = std::numeric_limits<float>::min();

struct Layout {
  int exponent_bits;
  int mantissa_bits;
  int bias;
};

Layout layout_of(KvType type) {
  switch (type) {
    case KvType::kBf16: return {8, 7, 127};
    case KvType::kFp32: return {8, 23, 127};
    case KvType::kFp8E5m2: return {5, 2, 15};
    case KvType::kFp8E4m3:
    case KvType::kFp8E4m3Token: return {4, 3, 7};
  }
  return {};
}

// The largest finite positive code.
std::uint32_t largest_fp8(KvType type) {
  return type == KvType::kFp8E5m2 ? 0x7b : 0x7e;
}

std::uint32_t nearest_fp8(KvType type, double x) {
  const std::uint32_t sign = std::signbit(x) ? 0x80 : 0;
  const double size = std::min(std::fabs(x), decode_bits(type, largest_fp8(type)));
  // The first code that is not below: positive codes ascend with their values.
  std::uint32_t code = 0;
  for (std::uint32_t step = 64; step > 0; step /= 2) {
    if (code + step <= largest_fp8(type) + 1 && decode_bits(type, code + step - 1) < size) code += step;
  }
  if (code == 0) return sign;
  const double up = decode_bits(type, code) - size;
  const double down = size - decode_bits(type, code - 1);
  if (down < up || (down == up && (code - 1) % 2 == 0)) --code;
  return sign | code;
}

std::uint32_t nearest_bf16(float x) {
  const std::uint32_t sign = std::signbit(x) ? 0x8000 : 0;
  if (std::fabs(x) < kSmallestNormal) return sign;
  int exponent = 0;
  const double mantissa = std::frexp(std::fabs(static_cast<double>(x)), &exponent);  // [0.5, 1)
  const double rounded = std::nearbyint(std::ldexp(mantissa, 8));                    // 8 significant bits
  const double value = std::ldexp(rounded, exponent - 8);
  if (value > std::numeric_limits<float>::max()) return sign | 0x7f80;
  return sign | std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16;
}

}  // namespace

std::size_t element_bytes(KvType type) {
  const Layout layout = layout_of(type);
  return static_cast<std::size_t>(1 + layout.exponent_bits + layout.mantissa_bits) / 8;
}

std::uint32_t element_bits(KvType type, std::span<const std::byte> bytes, std::size_t index) {
  const std::size_t size = element_bytes(type);
  std::uint32_t bits = 0;
  std::memcpy(&bits, bytes.data() + index * size, size);  // x86 stores the low byte first
  return bits;
}

double decode_bits(KvType type, std::uint32_t bits) {
  const Layout layout = layout_of(type);
  const std::uint32_t most_exponent = (1U << layout.exponent_bits) - 1;
  const std::uint32_t most_mantissa = (1U << layout.mantissa_bits) - 1;
  const std::uint32_t mantissa = bits & most_mantissa;
  const std::uint32_t exponent = bits >> layout.mantissa_bits & most_exponent;
  const bool negative = (bits >> (layout.exponent_bits + layout.mantissa_bits) & 1) != 0;
  const bool e4m3 = type == KvType::kFp8E4m3 || type == KvType::kFp8E4m3Token;
  double value = 0.0;
  if (exponent == most_exponent && (!e4m3 || mantissa == most_mantissa)) {
    value = mantissa == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    value = std::ldexp(static_cast<double>(mantissa), 1 - layout.bias - layout.mantissa_bits);
  } else {
    value = std::ldexp(static_cast<double>(mantissa + most_mantissa + 1),
                       static_cast<int>(exponent) - layout.bias - layout.mantissa_bits);
  }
  return negative ? -value : value;
}

std::uint32_t expected_bits(KvType type, float x, float scale) {
  if (type == KvType::kFp32) return std::bit_cast<std::uint32_t>(x);
  if (type == KvType::kBf16) return nearest_bf16(x);
  if (std::fabs(x) < kSmallestNormal) x = std::copysign(0.0F, x);
  return nearest_fp8(type, static_cast<double>(x / scale));
}

float expected_token_scale(std::span<const float> row) {
  float largest = 0.0F;
  for (const float x : row) {
    if (std::isfinite(x)) largest = std::max(largest, std::fabs(x));
  }
  if (largest < kSmallestNormal) return 1.0F;
  int exponent = -117;
  while (exponent < 119 && static_cast<double>(largest) > std::ldexp(448.0, exponent)) ++exponent;
  return std::ldexp(1.0F, exponent);
}

double rounding_unit(KvType type) {
  if (type == KvType::kFp32) return 0.0;
  return std::ldexp(1.0, -layout_of(type).mantissa_bits - 1);
}

}  // namespace sterling::proof
