#include "quant/float_codes.h"

#include <bit>
#include <cstddef>

namespace sterling::quant {

namespace {

constexpr float kInfinity = std::bit_cast<float>(0x7f800000u);
constexpr float kNaN = std::bit_cast<float>(0x7fc00000u);

// 2^n for n in FP32's normal range.
constexpr float power_of_two(int n) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(n + 127) << 23);
}

constexpr float with_sign(bool negative, float magnitude) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | (negative ? 0x80000000u : 0u));
}

// A code of 1 sign, `exponent_bits` and `mantissa_bits`, of which all are finite. A zero exponent field means a subnormal:
// no hidden one, the exponent of field 1. Every factor and product below is exact in FP32.
constexpr float finite(unsigned code, int exponent_bits, int mantissa_bits, int bias) {
  const unsigned mantissa = code & ((1u << mantissa_bits) - 1);
  const unsigned exponent = (code >> mantissa_bits) & ((1u << exponent_bits) - 1);
  const bool negative = ((code >> (mantissa_bits + exponent_bits)) & 1u) != 0;
  const unsigned significand = exponent == 0 ? mantissa : mantissa | (1u << mantissa_bits);
  const int power = (exponent == 0 ? 1 : static_cast<int>(exponent)) - bias - mantissa_bits;
  return with_sign(negative, static_cast<float>(significand) * power_of_two(power));
}

constexpr float e4m3(unsigned code) {
  return (code & 0x7fu) == 0x7fu ? with_sign((code & 0x80u) != 0, kNaN) : finite(code, 4, 3, 7);
}

constexpr float e5m2(unsigned code) {
  const unsigned magnitude = code & 0x7fu;
  const bool negative = (code & 0x80u) != 0;
  if (magnitude > 0x7cu) return with_sign(negative, kNaN);
  if (magnitude == 0x7cu) return with_sign(negative, kInfinity);
  return finite(code, 5, 2, 15);
}

constexpr float e8m0(unsigned code) {
  if (code == 0xffu) return kNaN;
  if (code == 0) return std::bit_cast<float>(0x00400000u);  // 2^-127 is a subnormal of FP32
  return std::bit_cast<float>(static_cast<std::uint32_t>(code) << 23);
}

constexpr float e2m1(unsigned code) {
  return finite(code & 0xfu, 2, 1, 1);
}

template <std::size_t N>
constexpr std::array<float, N> table(float (*decode)(unsigned)) {
  std::array<float, N> values{};
  for (unsigned code = 0; code < N; ++code) values[code] = decode(code);
  return values;
}

constexpr std::array<float, 256> kE4M3 = table<256>(e4m3);
constexpr std::array<float, 256> kE5M2 = table<256>(e5m2);
constexpr std::array<float, 256> kE8M0 = table<256>(e8m0);
constexpr std::array<float, 16> kE2M1 = table<16>(e2m1);

}  // namespace

float e4m3_to_float(std::uint8_t code) {
  return kE4M3[code];
}
float e5m2_to_float(std::uint8_t code) {
  return kE5M2[code];
}
float e8m0_to_float(std::uint8_t code) {
  return kE8M0[code];
}
float e2m1_to_float(std::uint8_t code) {
  return kE2M1[code & 0xfu];
}

const std::array<float, 256>& e4m3_table() {
  return kE4M3;
}
const std::array<float, 256>& e5m2_table() {
  return kE5M2;
}
const std::array<float, 256>& e8m0_table() {
  return kE8M0;
}
const std::array<float, 16>& e2m1_table() {
  return kE2M1;
}

}  // namespace sterling::quant
