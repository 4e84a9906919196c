// RoPE tables. Sine, cosine and frequencies against the C library in long double.
#include "kernels/rope_table.h"

#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include <gtest/gtest.h>

namespace sterling::kernels {
namespace {

RopeParams plain_params(double theta, int rotary_dim) {
  RopeParams params;
  params.theta = theta;
  params.rotary_dim = rotary_dim;
  return params;
}

double ulps(float found, long double exact) {
  int exponent = 0;
  std::frexp(static_cast<double>(exact), &exponent);
  return static_cast<double>(std::fabs(static_cast<long double>(found) - exact)) / std::ldexp(1.0, exponent - 24);
}

TEST(RopeTable, SineAndCosineWithinOneUlp) {
  double worst = 0.0;
  float frequencies[64];
  const std::vector<float> inv = rope_inv_freq(plain_params(1e7, 128));
  std::copy(inv.begin(), inv.end(), frequencies);
  float c[64], s[64];
  for (const std::int32_t position : {0, 1, 2, 3, 7, 100, 1023, 4096, 32767, 131071, 262142, 262143}) {
    rope_cos_sin(position, frequencies, 64, c, s);
    for (int i = 0; i < 64; ++i) {
      const float angle = static_cast<float>(position) * frequencies[i];
      worst = std::max(worst, ulps(c[i], std::cos(static_cast<long double>(angle))));
      if (angle != 0.0F) worst = std::max(worst, ulps(s[i], std::sin(static_cast<long double>(angle))));
    }
  }
  // Every position to 262,143 at frequency 1, where the angle is largest, and at one that is no whole number.
  for (std::int32_t position = 1; position < 262144; ++position) {
    const float pair[2] = {1.0F, 0.7071067690849304F};
    rope_cos_sin(position, pair, 2, c, s);
    for (int i = 0; i < 2; ++i) {
      const float angle = static_cast<float>(position) * pair[i];
      worst = std::max(worst, ulps(c[i], std::cos(static_cast<long double>(angle))));
      worst = std::max(worst, ulps(s[i], std::sin(static_cast<long double>(angle))));
    }
  }
  EXPECT_LT(worst, 0.51);
}

TEST(RopeTable, AnglesNearMultiplesOfHalfPi) {
  for (int n = 1; n < 166887; n += 7) {
    const float angle = static_cast<float>(n * 1.57079632679489661923);
    const float frequency = angle;
    float c = 0.0F, s = 0.0F;
    rope_cos_sin(1, &frequency, 1, &c, &s);
    ASSERT_LT(ulps(c, std::cos(static_cast<long double>(angle))), 0.51) << n;
    ASSERT_LT(ulps(s, std::sin(static_cast<long double>(angle))), 0.51) << n;
  }
}

TEST(RopeTable, ZeroAndUnusableAngles) {
  float c = 0.0F, s = 1.0F;
  const float one = 1.0F, infinite = std::numeric_limits<float>::infinity();
  rope_cos_sin(0, &one, 1, &c, &s);
  EXPECT_EQ(c, 1.0F);
  EXPECT_EQ(s, 0.0F);
  rope_cos_sin(1, &infinite, 1, &c, &s);
  EXPECT_TRUE(std::isnan(c) && std::isnan(s));
}

TEST(RopeTable, PowMatchesLongDouble) {
  for (const double x : {2.0, 1e4, 1e5, 5e5, 1e6, 1e7, 1.5, 0.25, 1e9}) {
    for (int i = 0; i <= 64; ++i) {
      const double y = i / 64.0;
      const long double exact = std::pow(static_cast<long double>(x), static_cast<long double>(y));
      ASSERT_LT(std::fabs(static_cast<double>(deterministic_pow(x, y) / exact - 1.0L)), 1e-14) << x << "^" << y;
    }
  }
}

// The FP32 steps of Hugging Face: power, then reciprocal, each rounded.
TEST(RopeTable, PlainFrequencies) {
  const std::vector<float> f = rope_inv_freq(plain_params(500000.0, 128));
  ASSERT_EQ(f.size(), 64u);
  for (std::size_t i = 0; i < f.size(); ++i) {
    const auto power =
        static_cast<float>(std::pow(500000.0L, static_cast<long double>(static_cast<float>(2 * i) / 128.0F)));
    EXPECT_EQ(f[i], 1.0F / power) << i;
  }
  EXPECT_EQ(f[0], 1.0F);
}

TEST(RopeTable, LinearScalingAndDivisors) {
  RopeParams params = plain_params(10000.0, 8);
  const std::vector<float> plain = rope_inv_freq(params);
  params.scaling = RopeScaling::kLinear;
  params.factor = 4.0;
  const std::vector<float> linear = rope_inv_freq(params);
  params.scaling = RopeScaling::kLlama3;
  params.frequency_divisors = {1.0F, 2.0F, 3.0F, 8.0F};
  const std::vector<float> divided = rope_inv_freq(params);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(linear[i], plain[i] / 4.0F);
    EXPECT_EQ(divided[i], plain[i] / params.frequency_divisors[i]);
  }
}

// Llama 3.1: factor 8, low 1, high 4, context 8192. High frequencies kept, low ones divided by 8, a blend between.
TEST(RopeTable, Llama3Scaling) {
  RopeParams params = plain_params(500000.0, 128);
  params.scaling = RopeScaling::kLlama3;
  params.factor = 8.0;
  params.low_freq_factor = 1.0;
  params.high_freq_factor = 4.0;
  params.original_max_position = 8192;
  const std::vector<float> plain = rope_inv_freq(plain_params(500000.0, 128));
  const std::vector<float> scaled = rope_inv_freq(params);
  int blended = 0;
  for (std::size_t i = 0; i < scaled.size(); ++i) {
    const double wavelength = 2 * 3.14159265358979323846 / plain[i];
    double expected = plain[i];
    if (wavelength > 8192.0) {
      expected = plain[i] / 8.0;
    } else if (wavelength > 2048.0) {
      const double smooth = (8192.0 / wavelength - 1.0) / 3.0;
      expected = (1 - smooth) * plain[i] / 8.0 + smooth * plain[i];
      ++blended;
    }
    EXPECT_NEAR(scaled[i], expected, expected * 8 * 0x1p-24) << i;
  }
  EXPECT_GT(blended, 3);
}

}  // namespace
}  // namespace sterling::kernels
