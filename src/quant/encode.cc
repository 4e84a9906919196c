#include "quant/encode.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "quant/float_codes.h"

namespace sterling::quant {
namespace {

// A small float: `mantissa` stored bits, exponent bias `bias`.
struct Layout {
  int mantissa;
  int bias;
};

// Nearest code of a finite magnitude (FP32 bits without sign), ties to even, as if the exponent had no upper end.
std::uint32_t round_magnitude(std::uint32_t bits, Layout layout) {
  const int smallest = 1 - layout.bias;  // exponent of the smallest normal value
  if (static_cast<int>(bits >> 23) - 127 >= smallest) {
    const int drop = 23 - layout.mantissa;
    const std::uint32_t lowest_kept = (bits >> drop) & 1u;
    const std::uint32_t rounded = (bits + (1u << (drop - 1)) - 1u + lowest_kept) >> drop;
    return rounded - (static_cast<std::uint32_t>(127 - layout.bias) << layout.mantissa);
  }
  // Subnormal: a multiple of 2^(smallest - mantissa). The product is exact; adding 2^23 rounds to an integer, and 2^m goes over into the smallest
  // normal code by itself.
  const float scaled = std::bit_cast<float>(bits) * std::ldexp(1.0F, layout.mantissa - smallest);
  return std::bit_cast<std::uint32_t>(scaled + 0x1p23F) & 0xffu;
}

std::uint8_t to_small_float(float value, Layout layout, std::uint32_t largest, std::uint32_t beyond,
                            std::uint32_t nan) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 24) & 0x80u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint8_t>(sign | nan);
  if (magnitude == 0x7f800000u) return static_cast<std::uint8_t>(sign | beyond);
  const std::uint32_t code = round_magnitude(magnitude, layout);
  return static_cast<std::uint8_t>(sign | (code > largest ? beyond : code));
}

// Sum of squared errors of a block under scale code `code`.
double block_error(const float* x, std::uint8_t code, float global) {
  const float step = e4m3_to_float(code) * global;
  const double exact_step = static_cast<double>(e4m3_to_float(code)) * static_cast<double>(global);
  double sum = 0.0;
  for (std::int64_t i = 0; i < kNvfp4Group; ++i) {
    const double decoded = static_cast<double>(e2m1_to_float(float_to_e2m1(x[i] / step))) * exact_step;
    const double error = static_cast<double>(x[i]) - decoded;
    sum += error * error;
  }
  return sum;
}

// The code with the least squared error among a binade below the usual one (finer steps, the largest elements saturate) and a few above
// (so that large elements meet the grid better). Ties go to the one nearest to the usual code, then to the lower.
std::uint8_t search_scale(const float* x, std::uint8_t usual, float global) {
  constexpr int kBelow = 8;
  constexpr int kAbove = 4;
  constexpr int kLargest = 0x7e;
  std::uint8_t best = usual;
  double least = block_error(x, usual, global);
  for (int distance = 1; distance <= kBelow; ++distance) {
    for (const int code : {usual - distance, usual + distance}) {
      if (code < 1 || code > kLargest || code > usual + kAbove) continue;
      const double error = block_error(x, static_cast<std::uint8_t>(code), global);
      if (error < least) {
        least = error;
        best = static_cast<std::uint8_t>(code);
      }
    }
  }
  return best;
}

}  // namespace

std::uint8_t float_to_e4m3(float value, Overflow overflow) {
  return to_small_float(value, {3, 7}, 0x7e, overflow == Overflow::kSaturate ? 0x7e : 0x7f, 0x7f);
}

std::uint8_t float_to_e5m2(float value, Overflow overflow) {
  return to_small_float(value, {2, 15}, 0x7b, overflow == Overflow::kSaturate ? 0x7b : 0x7c, 0x7e);
}

std::uint8_t float_to_e2m1(float value) {
  const float m = std::fabs(value);
  // The midpoints of the grid 0, 0.5, 1, 1.5, 2, 3, 4, 6; a value on one goes to the even code.
  const int code = (m > 0.25F) + (m >= 0.75F) + (m > 1.25F) + (m >= 1.75F) + (m > 2.5F) + (m >= 3.5F) + (m > 5.0F);
  return static_cast<std::uint8_t>(code | (std::signbit(value) ? 8 : 0));
}

float nvfp4_global_scale(float largest) {
  const float scale = largest / (kE2m1Max * kE4m3Max);
  return scale == 0.0F ? 1.0F : scale;
}

std::uint8_t nvfp4_block_scale(float largest, float global) {
  const float scale = largest / (kE2m1Max * global);
  if (scale == 0.0F) return float_to_e4m3(1.0F);
  return float_to_e4m3(std::clamp(scale, 0x1p-9F, kE4m3Max));
}

std::uint8_t encode_nvfp4_block(const float* x, float global, ScaleSearch search, std::uint8_t* codes) {
  const float largest = largest_magnitude({x, static_cast<std::size_t>(kNvfp4Group)});
  std::uint8_t scale = nvfp4_block_scale(largest, global);
  if (search == ScaleSearch::kMse && largest > 0.0F) scale = search_scale(x, scale, global);
  const float step = e4m3_to_float(scale) * global;
  const auto element = [&](std::int64_t i) {
    // An element of 0 over a step of 0 would be NaN.
    return x[i] == 0.0F ? std::uint8_t{0} : float_to_e2m1(x[i] / step);
  };
  for (std::int64_t i = 0; i < kNvfp4Group / 2; ++i) {
    codes[i] = static_cast<std::uint8_t>(element(2 * i) | (element(2 * i + 1) << 4));
  }
  return scale;
}

float fp8_scale(float largest) {
  const float scale = largest / kE4m3Max;
  return scale == 0.0F ? 1.0F : scale;
}

void encode_fp8(std::span<const float> x, float scale, std::uint8_t* codes) {
  for (std::size_t i = 0; i < x.size(); ++i) codes[i] = float_to_e4m3(x[i] / scale);
}

float largest_magnitude(std::span<const float> x) {
  // Bits of magnitudes order as the values do, with infinity and then NaN on top.
  std::uint32_t largest = 0;
  for (const float value : x) largest = std::max(largest, std::bit_cast<std::uint32_t>(value) & 0x7fffffffu);
  return std::bit_cast<float>(largest);
}

void QuantError::add(float original, double decoded) {
  const double error = std::fabs(static_cast<double>(original) - decoded);
  max_abs = std::max(max_abs, error);
  squared_error += error * error;
  squares += static_cast<double>(original) * static_cast<double>(original);
  ++elements;
}

void QuantError::merge(const QuantError& other) {
  max_abs = std::max(max_abs, other.max_abs);
  squared_error += other.squared_error;
  squares += other.squares;
  elements += other.elements;
}

double QuantError::relative_rms() const {
  return squares == 0.0 ? 0.0 : std::sqrt(squared_error / squares);
}

double QuantError::sqnr_db() const {
  if (squared_error == 0.0) return std::numeric_limits<double>::infinity();
  return 10.0 * std::log10(squares / squared_error);
}

}  // namespace sterling::quant
