#include "kernels/kv_codes.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/float_types.h"

namespace sterling::kernels {
namespace {

constexpr std::uint32_t kMagnitude = 0x7fffffffu;
constexpr std::uint32_t kInfinity = 0x7f800000u;

std::uint32_t bits_of(float x) {
  return std::bit_cast<std::uint32_t>(x);
}

struct Fp8Layout {
  int mantissa;
  int bias;
  float largest;
  float limit;  // magnitudes from here on (E5M2) or beyond (E4M3) would round away from `largest`
  std::uint32_t nan;
};
// Halfway to the next value: 448 is the even one of 448 and 480, 57344 the odd one of 57344 and 65536.
constexpr Fp8Layout kE4m3Layout = {3, 7, 448.0F, 464.0F, 0x7f};
constexpr Fp8Layout kE5m2Layout = {2, 15, 57344.0F, 61440.0F, 0x7e};

bool clips(const Fp8Layout& layout, float magnitude) {
  return layout.mantissa == 3 ? magnitude > layout.limit : magnitude >= layout.limit;
}

// The code of a magnitude up to `largest`.
template <Fp8Layout kLayout>
std::uint32_t round_fp8(float magnitude) {
  constexpr int kDrop = 23 - kLayout.mantissa;
  constexpr int kSmallest = 1 - kLayout.bias;  // exponent of the smallest normal value
  const std::uint32_t bits = bits_of(magnitude);
  const std::uint32_t normal = ((bits + (1u << (kDrop - 1)) - 1u + ((bits >> kDrop) & 1u)) >> kDrop) -
                               (static_cast<std::uint32_t>(127 - kLayout.bias) << kLayout.mantissa);
  // Below, values are multiples of 2^(smallest - mantissa): the last bit of a number of this size, so that the addition rounds.
  constexpr float kShift =
      std::bit_cast<float>(static_cast<std::uint32_t>(127 + kSmallest - kLayout.mantissa + 23) << 23);
  const std::uint32_t small = bits_of(magnitude + kShift) & 0xffu;
  return bits < (static_cast<std::uint32_t>(127 + kSmallest) << 23) ? small : normal;
}

template <Fp8Layout kLayout>
void encode_fp8(const float* row, int n, float scale, std::uint8_t* codes, KvCounts& counts) {
  int clipped = 0;
  int underflowed = 0;
  int non_finite = 0;
  for (int i = 0; i < n; ++i) {
    const std::uint32_t bits = bits_of(row[i]);
    const std::uint32_t magnitude_bits = bits & kMagnitude;
    const std::uint32_t flushed = magnitude_bits < 0x00800000u ? 0u : magnitude_bits;
    const float quotient = std::bit_cast<float>(flushed) / scale;
    // The order of comparisons sends NaN to `largest`; its code is put in below.
    const float clamped = quotient < kLayout.largest ? quotient : kLayout.largest;
    std::uint32_t code = round_fp8<kLayout>(clamped);
    const bool special = magnitude_bits >= kInfinity;
    clipped += static_cast<int>(!special && clips(kLayout, quotient));
    underflowed += static_cast<int>(magnitude_bits != 0 && code == 0);
    non_finite += static_cast<int>(special);
    code = magnitude_bits > kInfinity ? kLayout.nan : code;
    codes[i] = static_cast<std::uint8_t>(code | ((bits >> 24) & 0x80u));
  }
  counts += {clipped, underflowed, non_finite};
}

void encode_bf16(const float* row, int n, std::uint16_t* out, KvCounts& counts) {
  int clipped = 0;
  int underflowed = 0;
  int non_finite = 0;
  for (int i = 0; i < n; ++i) {
    const std::uint32_t bits = bits_of(row[i]);
    const std::uint32_t magnitude = bits & kMagnitude;
    const std::uint32_t sign = (bits >> 16) & 0x8000u;
    const std::uint32_t rounded = (magnitude + 0x7fffu + ((magnitude >> 16) & 1u)) >> 16;
    const std::uint32_t quiet = (magnitude >> 16) | 0x40u;
    // By the value before rounding: what FP32 calls subnormal is flushed even where rounding would lift it to the smallest normal.
    const std::uint32_t value = magnitude > kInfinity ? quiet : magnitude < 0x00800000u ? 0u : rounded;
    out[i] = static_cast<std::uint16_t>(sign | value);
    non_finite += static_cast<int>(magnitude >= kInfinity);
    clipped += static_cast<int>(magnitude < kInfinity && value == 0x7f80u);
    underflowed += static_cast<int>(magnitude != 0 && value == 0);
  }
  counts += {clipped, underflowed, non_finite};
}

void encode_fp32(const float* row, int n, void* out, KvCounts& counts) {
  int non_finite = 0;
  for (int i = 0; i < n; ++i) non_finite += static_cast<int>((bits_of(row[i]) & kMagnitude) >= kInfinity);
  std::memcpy(out, row, static_cast<std::size_t>(n) * sizeof(float));
  counts.non_finite += non_finite;
}

template <Fp8Layout kLayout>
float decode_fp8(std::uint8_t code) {
  const int magnitude = code & 0x7f;
  const int exponent = magnitude >> kLayout.mantissa;
  const int mantissa = magnitude & ((1 << kLayout.mantissa) - 1);
  const bool finite = kLayout.mantissa == 3 ? magnitude != 0x7f : exponent != 31;
  float value = std::numeric_limits<float>::quiet_NaN();
  if (finite) {
    const int significand = exponent == 0 ? mantissa : mantissa + (1 << kLayout.mantissa);
    value = std::ldexp(static_cast<float>(significand), std::max(exponent, 1) - kLayout.bias - kLayout.mantissa);
  } else if (kLayout.mantissa == 2 && mantissa == 0) {
    value = std::numeric_limits<float>::infinity();
  }
  return (code & 0x80) != 0 ? -value : value;
}

template <Fp8Layout kLayout>
const std::array<float, 256>& fp8_values() {
  static const std::array<float, 256> kValues = [] {
    std::array<float, 256> values{};
    for (std::size_t code = 0; code < values.size(); ++code)
      values[code] = decode_fp8<kLayout>(static_cast<std::uint8_t>(code));
    return values;
  }();
  return kValues;
}

void decode_codes(const std::array<float, 256>& values, const void* elements, int n, float* row) {
  const auto* const codes = static_cast<const std::uint8_t*>(elements);
  for (int i = 0; i < n; ++i) row[i] = values[codes[i]];
}

}  // namespace

KvCounts& KvCounts::operator+=(const KvCounts& other) {
  clipped += other.clipped;
  underflowed += other.underflowed;
  non_finite += other.non_finite;
  return *this;
}

std::size_t kv_element_bytes(KvCode code) {
  return code == KvCode::kFp32 ? 4 : code == KvCode::kBf16 ? 2 : 1;
}

float token_scale(const float* row, int n) {
  std::uint32_t largest = 0;
  for (int i = 0; i < n; ++i) {
    const std::uint32_t magnitude = bits_of(row[i]) & kMagnitude;
    largest = std::max(largest, magnitude < kInfinity ? magnitude : 0u);
  }
  if (largest < 0x00800000u) return 1.0F;
  // largest = m · 2^e with m in [1, 2); 448 = 1.75 · 2^8.
  const int exponent = static_cast<int>(largest >> 23) - 127;
  const bool above = (largest & 0x7fffffu) > 0x600000u;
  const int e = std::clamp(exponent - 8 + static_cast<int>(above), -117, 119);
  return std::bit_cast<float>(static_cast<std::uint32_t>(e + 127) << 23);
}

void encode_kv(KvCode code, const float* row, int n, float scale, void* elements, KvCounts& counts) {
  switch (code) {
    case KvCode::kBf16: return encode_bf16(row, n, static_cast<std::uint16_t*>(elements), counts);
    case KvCode::kFp32: return encode_fp32(row, n, elements, counts);
    case KvCode::kE4m3:
    case KvCode::kE4m3Token:
      return encode_fp8<kE4m3Layout>(row, n, scale, static_cast<std::uint8_t*>(elements), counts);
    case KvCode::kE5m2: return encode_fp8<kE5m2Layout>(row, n, scale, static_cast<std::uint8_t*>(elements), counts);
  }
}

void decode_kv(KvCode code, const void* elements, int n, float* row) {
  switch (code) {
    case KvCode::kBf16: {
      const auto* const values = static_cast<const std::uint16_t*>(elements);
      for (int i = 0; i < n; ++i) row[i] = to_float(bf16{values[i]});
      return;
    }
    case KvCode::kFp32: std::memcpy(row, elements, static_cast<std::size_t>(n) * sizeof(float)); return;
    case KvCode::kE4m3:
    case KvCode::kE4m3Token: return decode_codes(fp8_values<kE4m3Layout>(), elements, n, row);
    case KvCode::kE5m2: return decode_codes(fp8_values<kE5m2Layout>(), elements, n, row);
  }
}

}  // namespace sterling::kernels
