#include "lab/kv_statistics.h"

#include <algorithm>
#include <cmath>
#include <random>

#include <gtest/gtest.h>

namespace sterling::lab {
namespace {

std::vector<float> normal_values(std::size_t count, float width, std::uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> draw(0.0F, width);
  std::vector<float> values(count);
  for (float& v : values) v = draw(engine);
  return values;
}

// Every finite value of a format with `mantissa` bits, by its definition: nothing of the codecs that the cache uses.
std::vector<double> values_of(int exponent_bits, int mantissa_bits, double largest) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  std::vector<double> out;
  for (int e = 0; e < (1 << exponent_bits); ++e) {
    for (int m = 0; m < (1 << mantissa_bits); ++m) {
      const double fraction = static_cast<double>(m) / (1 << mantissa_bits);
      const double value = e == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1.0 + fraction, e - bias);
      if (value <= largest) out.push_back(value);
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

double nearest(const std::vector<double>& grid, double x) {
  const double size = std::min(std::fabs(x), grid.back());
  double best = grid.front();
  for (const double g : grid) {
    if (std::fabs(g - size) < std::fabs(best - size)) best = g;
  }
  return std::copysign(best, x);
}

TEST(MagnitudeHistogram, PercentilesAreWithinAStepOfSortedValues) {
  const std::vector<float> values = normal_values(20000, 3.0F, 1);
  MagnitudeHistogram histogram;
  std::vector<float> sizes;
  double squares = 0.0;
  for (const float v : values) {
    histogram.add(v);
    sizes.push_back(std::fabs(v));
    squares += static_cast<double>(v) * static_cast<double>(v);
  }
  std::sort(sizes.begin(), sizes.end());
  EXPECT_EQ(histogram.count(), 20000);
  EXPECT_EQ(histogram.largest(), sizes.back());
  EXPECT_NEAR(histogram.rms(), std::sqrt(squares / 20000.0), 1e-9);
  for (const double share : {0.1, 0.5, 0.9, 0.99, 0.999, 0.9999, 1.0}) {
    const float exact = sizes[static_cast<std::size_t>(std::ceil(share * 20000.0)) - 1];
    const float found = histogram.percentile(share);
    EXPECT_GE(found, exact) << share;
    EXPECT_LE(found, exact * std::exp2(1.0F / 16.0F) * 1.00001F) << share;
    EXPECT_LE(found, sizes.back());
  }
}

TEST(MagnitudeHistogram, CountsZerosAndOctaves) {
  MagnitudeHistogram histogram;
  for (const float v : {0.0F, -0.0F, 1.0F, -1.999F, 2.0F, 0.5F, 1e-30F, 3e30F}) histogram.add(v);
  EXPECT_EQ(histogram.zeros(), 2);
  EXPECT_EQ(histogram.octave(0), 2);
  EXPECT_EQ(histogram.octave(1), 1);
  EXPECT_EQ(histogram.octave(-1), 1);
  EXPECT_EQ(histogram.octave(500), 0);
  EXPECT_EQ(histogram.percentile(0.25), 0.0F);  // two of eight are zero
  // Beyond both ends values are counted in the last step, and none is lost.
  std::int64_t sum = 0;
  for (int o = MagnitudeHistogram::kLowest; o < MagnitudeHistogram::kLowest + MagnitudeHistogram::kOctaves; ++o) {
    sum += histogram.octave(o);
  }
  EXPECT_EQ(sum, 6);
}

TEST(MagnitudeHistogram, MergedIsTheSameAsTogether) {
  MagnitudeHistogram first, second, both;
  for (const float v : normal_values(500, 1.0F, 2)) {
    first.add(v);
    both.add(v);
  }
  for (const float v : normal_values(700, 9.0F, 3)) {
    second.add(v);
    both.add(v);
  }
  first.merge(second);
  EXPECT_EQ(first.count(), both.count());
  EXPECT_EQ(first.largest(), both.largest());
  for (const double share : {0.2, 0.7, 0.99}) EXPECT_EQ(first.percentile(share), both.percentile(share));
}

TEST(KvMagnitudes, HeadsAndChannelsAreKeptApart) {
  SideMagnitudes side;
  side.heads.resize(2);
  side.channels.resize(2 * 3);
  // [2 heads][2 tokens][3]
  const std::vector<float> values = {1, -2, 3, 4, 0, -5, 10, 20, 30, -40, 50, std::nanf("")};
  add_magnitudes(values, 3, side);
  EXPECT_EQ(side.heads[0].largest(), 5.0F);
  EXPECT_EQ(side.heads[1].largest(), 50.0F);
  EXPECT_EQ(side.channels, (std::vector<float>{4, 2, 5, 40, 50, 30}));
  EXPECT_EQ(side.non_finite, 1);
}

TEST(ScaleCost, EqualsABruteForceSearchOverTheFormatsValues) {
  struct Case {
    plan::KvType type;
    std::vector<double> grid;
  };
  const Case cases[] = {{plan::KvType::kFp8E4m3, values_of(4, 3, 448.0)},
                        {plan::KvType::kFp8E5m2, values_of(5, 2, 57344.0)}};
  for (const Case& c : cases) {
    for (const float scale : {0.01F, 1.0F, 37.0F}) {
      const std::vector<float> values = normal_values(400, 100.0F, 4);
      ScaleCost cost{.scale = scale};
      add_cost(c.type, values, cost);
      double squared = 0.0, squares = 0.0;
      std::int64_t clipped = 0, zero = 0;
      for (const float v : values) {
        const double q = static_cast<double>(v / scale);
        const double back = nearest(c.grid, q) * static_cast<double>(scale);
        squared += (back - static_cast<double>(v)) * (back - static_cast<double>(v));
        squares += static_cast<double>(v) * static_cast<double>(v);
        const double step = c.grid.back() - c.grid[c.grid.size() - 2];
        clipped += std::fabs(q) >= c.grid.back() + step / 2.0 ? 1 : 0;
        zero += nearest(c.grid, q) == 0.0 ? 1 : 0;
      }
      EXPECT_NEAR(cost.squared_error, squared, 1e-6 * squared + 1e-12) << scale;
      EXPECT_NEAR(cost.squares, squares, 1e-9 * squares);
      EXPECT_EQ(cost.clipped, clipped) << scale;
      EXPECT_EQ(cost.underflowed, zero) << scale;
      EXPECT_EQ(cost.count, 400);
    }
  }
}

TEST(CandidateScales, AmaxPutsTheLargestValueOnTheLargestCode) {
  MagnitudeHistogram histogram;
  for (const float v : {1.0F, -7.0F, 896.0F}) histogram.add(v);
  EXPECT_EQ(candidate_scales(plan::KvType::kFp8E4m3, ScaleMethod::kAmax, 99.0, 1.0, histogram),
            (std::vector<float>{2.0F}));
  EXPECT_EQ(candidate_scales(plan::KvType::kFp8E4m3, ScaleMethod::kAmax, 99.0, 1.5, histogram),
            (std::vector<float>{3.0F}));
  EXPECT_EQ(candidate_scales(plan::KvType::kFp8E5m2, ScaleMethod::kAmax, 99.0, 1.0, histogram),
            (std::vector<float>{896.0F / 57344.0F}));
  const auto mse = candidate_scales(plan::KvType::kFp8E4m3, ScaleMethod::kMse, 99.0, 1.0, histogram);
  ASSERT_EQ(mse.size(), 25U);
  EXPECT_EQ(mse.front(), 2.0F);
  EXPECT_EQ(mse.back(), 0.25F);
  EXPECT_TRUE(std::is_sorted(mse.rbegin(), mse.rend()));
}

TEST(CandidateScales, PercentileLeavesOutliersToClip) {
  MagnitudeHistogram histogram;
  for (int i = 0; i < 9999; ++i) histogram.add(1.0F);
  histogram.add(1000.0F);
  const auto scales = candidate_scales(plan::KvType::kFp8E4m3, ScaleMethod::kPercentile, 99.9, 1.0, histogram);
  ASSERT_EQ(scales.size(), 1U);
  EXPECT_LT(scales[0], 1.1F / 448.0F);
}

TEST(CandidateScales, NothingButZerosGivesOne) {
  MagnitudeHistogram histogram;
  histogram.add(0.0F);
  EXPECT_EQ(candidate_scales(plan::KvType::kFp8E4m3, ScaleMethod::kMse, 99.0, 1.0, histogram),
            (std::vector<float>{1.0F}));
}

}  // namespace
}  // namespace sterling::lab
