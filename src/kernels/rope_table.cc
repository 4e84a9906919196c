#include "kernels/rope_table.h"

#include <bit>
#include <cmath>

namespace sterling::kernels {
namespace {

constexpr double kLn2High = 0x1.62e42fefa3p-1;     // 41 bits: n * high is exact for |n| < 2^12
constexpr double kLn2Low = 0x1.3de6af278ece6p-42;  // the rest of ln 2

// pi / 2 in three parts of 33 bits and a rest: n * part is exact for n < 2^20.
constexpr double kHalfPi1 = 0x1.921fb544p+0;
constexpr double kHalfPi2 = 0x1.0b4611a6p-34;
constexpr double kHalfPi3 = 0x1.3198a2e037073p-69;

// ln x = e ln 2 + 2 atanh(s), s = (m - 1) / (m + 1), m in [sqrt 1/2, sqrt 2): |s| < 0.172, series up to s^23.
double natural_log(double x) {
  auto bits = std::bit_cast<std::uint64_t>(x);
  auto exponent = static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0xfffffffffffffull) | 0x3ff0000000000000ull);
  if (m > 0x1.6a09e667f3bcdp+0) {
    m *= 0.5;
    ++exponent;
  }
  const double s = (m - 1.0) / (m + 1.0);
  const double s2 = s * s;
  double sum = 0.0;
  for (int i = 23; i >= 3; i -= 2) sum = (sum + 1.0 / i) * s2;
  const double e = exponent;
  return e * kLn2High + (2.0 * s + (2.0 * s * sum + e * kLn2Low));
}

// e^x by Taylor on |r| <= ln 2 / 2 up to r^15; |x| < 700.
double natural_exp(double x) {
  const double n = std::floor(x / 0x1.62e42fefa39efp-1 + 0.5);
  const double r = (x - n * kLn2High) - n * kLn2Low;
  double sum = 1.0;
  for (int i = 15; i >= 1; --i) sum = 1.0 + sum * r / i;
  return sum * std::bit_cast<double>(static_cast<std::uint64_t>(static_cast<int>(n) + 1023) << 52);
}

// Taylor series on |r| <= pi / 4 (+ reduction slack): the first term left out is below 1e-17.
double sine_series(double r) {
  const double r2 = r * r;
  double sum = 1.0;
  for (int i = 17; i >= 3; i -= 2) sum = 1.0 - sum * r2 / (i * (i - 1));
  return sum * r;
}
double cosine_series(double r) {
  const double r2 = r * r;
  double sum = 1.0;
  for (int i = 18; i >= 2; i -= 2) sum = 1.0 - sum * r2 / (i * (i - 1));
  return sum;
}

void cos_sin(float angle, float* cosine, float* sine) {
  const double x = angle;
  if (!(std::fabs(x) < 0x1p24)) {
    // Out of the reduction's range, or not finite. Positions and frequencies of real models stay below 2^19.
    *cosine = std::nanf("");
    *sine = std::nanf("");
    return;
  }
  const double turns = std::floor(x / 0x1.921fb54442d18p+0 + 0.5);
  const double r = ((x - turns * kHalfPi1) - turns * kHalfPi2) - turns * kHalfPi3;
  const double s = sine_series(r);
  const double c = cosine_series(r);
  switch (static_cast<std::int64_t>(turns) & 3) {
    case 0: *cosine = static_cast<float>(c), *sine = static_cast<float>(s); break;
    case 1: *cosine = static_cast<float>(-s), *sine = static_cast<float>(c); break;
    case 2: *cosine = static_cast<float>(-c), *sine = static_cast<float>(-s); break;
    default: *cosine = static_cast<float>(s), *sine = static_cast<float>(-c); break;
  }
}

// HF _compute_llama3_parameters: long wavelengths are divided by factor, short ones kept, those between blended. In FP32 like theirs.
float llama3_frequency(float frequency, const RopeParams& params) {
  const auto old_context = static_cast<double>(params.original_max_position);
  const float wavelength = static_cast<float>(2.0 * 3.14159265358979323846) / frequency;
  const auto factor = static_cast<float>(params.factor);
  const auto longest = static_cast<float>(old_context / params.low_freq_factor);
  const auto shortest = static_cast<float>(old_context / params.high_freq_factor);
  if (wavelength > longest) return frequency / factor;
  if (wavelength < shortest) return frequency;
  const float smooth = (static_cast<float>(old_context) / wavelength - static_cast<float>(params.low_freq_factor)) /
                       static_cast<float>(params.high_freq_factor - params.low_freq_factor);
  return (1.0F - smooth) * frequency / factor + smooth * frequency;
}

}  // namespace

double deterministic_pow(double x, double y) {
  return natural_exp(y * natural_log(x));
}

std::vector<float> rope_inv_freq(const RopeParams& params) {
  const std::int32_t half = params.rotary_dim / 2;
  std::vector<float> result(static_cast<std::size_t>(half));
  const auto theta = static_cast<float>(params.theta);
  for (std::int32_t i = 0; i < half; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(params.rotary_dim);
    float frequency = 1.0F / static_cast<float>(deterministic_pow(theta, exponent));
    const auto at = static_cast<std::size_t>(i);
    if (!params.frequency_divisors.empty()) {
      frequency = frequency / params.frequency_divisors[at];
    } else if (params.scaling == RopeScaling::kLinear) {
      frequency = frequency / static_cast<float>(params.factor);
    } else if (params.scaling == RopeScaling::kLlama3) {
      frequency = llama3_frequency(frequency, params);
    }
    result[at] = frequency;
  }
  return result;
}

void rope_cos_sin(std::int32_t position, const float* inverse_frequencies, int half, float* cosines, float* sines) {
  const auto p = static_cast<float>(position);
  for (int i = 0; i < half; ++i) cos_sin(p * inverse_frequencies[i], cosines + i, sines + i);
}

}  // namespace sterling::kernels
