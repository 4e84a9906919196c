#include "engine/row_scan.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/real_math.h"

namespace sterling::engine {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> random_row(std::size_t size, std::uint64_t seed, bool with_ties) {
  std::mt19937_64 random(seed);
  std::vector<float> row(size);
  for (float& x : row) {
    const auto bits = static_cast<std::int64_t>(random() >> 40) - (1 << 23);  // in [-2^23, 2^23)
    x = with_ties ? static_cast<float>(bits % 13) : static_cast<float>(bits) / 300000.0F;
  }
  return row;
}

// All sizes around the block's and around each vector width's, on every kernel that this machine has.
class RowScanTest : public testing::TestWithParam<const RowKernels*> {};

TEST_P(RowScanTest, MaximumAndItsPlace) {
  RowScan scan(*GetParam());
  for (std::size_t size = 1; size <= 200; ++size) {
    for (const bool ties : {false, true}) {
      const std::vector<float> row = random_row(size, size, ties);
      ASSERT_TRUE(scan.scan(row));
      const auto best = std::max_element(row.begin(), row.end());  // the first of equals
      ASSERT_EQ(scan.max(), *best);
      ASSERT_EQ(scan.argmax(), best - row.begin()) << "size " << size;
    }
  }
  const std::vector<float> zeros = {-1.0F, -0.0F, 0.0F, -0.0F};  // equal values: the lower id
  ASSERT_TRUE(scan.scan(zeros));
  EXPECT_EQ(scan.argmax(), 1);
}

TEST_P(RowScanTest, FindsWhatIsNotFiniteWhereverItIs) {
  RowScan scan(*GetParam());
  const std::vector<float> row = random_row(150, 3, false);
  for (std::size_t at = 0; at < row.size(); ++at) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN(), kInfinity, -kInfinity}) {
      std::vector<float> broken = row;
      broken[at] = bad;
      ASSERT_FALSE(scan.scan(broken)) << at << " " << bad;
      ASSERT_EQ(scan.first_not_finite(), static_cast<std::int32_t>(at));
    }
    std::vector<float> extreme = row;
    extreme[at] = at % 2 == 0 ? std::numeric_limits<float>::max() : std::numeric_limits<float>::lowest();
    ASSERT_TRUE(scan.scan(extreme));
    ASSERT_EQ(scan.first_not_finite(), -1);
  }
}

TEST_P(RowScanTest, BestAreThoseOfAFullSort) {
  RowScan scan(*GetParam());
  std::vector<RankedLogit> best;
  for (const std::size_t size : {1u, 5u, 63u, 64u, 65u, 300u, 5000u}) {
    for (const bool ties : {false, true}) {
      std::vector<float> row = random_row(size, size + 7, ties);
      if (size > 10) row[3] = row[7] = -kInfinity;  // masked
      scan.scan(row);
      std::vector<RankedLogit> expected;
      for (std::size_t i = 0; i < size; ++i) {
        if (row[i] != -kInfinity) expected.push_back({static_cast<std::int32_t>(i), row[i]});
      }
      std::stable_sort(expected.begin(), expected.end(),
                       [](const auto& a, const auto& b) { return a.logit > b.logit; });
      for (const std::int32_t k : {0, 1, 2, 20, 64, 100, 4999, 5000, 6000}) {
        scan.best(k, best);
        ASSERT_EQ(best.size(), std::min(static_cast<std::size_t>(k), expected.size()));
        for (std::size_t i = 0; i < best.size(); ++i) {
          ASSERT_EQ(best[i].token, expected[i].token) << "size " << size << ", k " << k << ", rank " << i;
          ASSERT_EQ(best[i].logit, expected[i].logit);
        }
      }
    }
  }
}

// The definition, written plainly; every kernel gives these bits.
TEST_P(RowScanTest, SumOfExponentialsBitForBit) {
  RowScan scan(*GetParam());
  for (const std::size_t size : {1u, 7u, 64u, 65u, 127u, 1000u, 4096u}) {
    for (const double inverse_temperature : {1.0, 1.0 / 0.7, 1e30}) {
      std::vector<float> row = random_row(size, size, false);
      if (size > 100) row[70] = -kInfinity;
      scan.scan(row);
      const double total = scan.sum_exp(inverse_temperature);
      double expected = 0.0;
      long double oracle = 0.0L;
      for (std::size_t block = 0; block < size; block += 64) {
        double lanes[8] = {};
        for (std::size_t i = block; i < std::min(size, block + 64); ++i) {
          const double x = (static_cast<double>(row[i]) - static_cast<double>(scan.max())) * inverse_temperature;
          lanes[i % 8] += exp_nonpositive(x);
          oracle += expl(static_cast<long double>(x));
        }
        expected += ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
      }
      ASSERT_EQ(std::bit_cast<std::uint64_t>(total), std::bit_cast<std::uint64_t>(expected)) << size;
      ASSERT_NEAR(total, static_cast<double>(oracle), 1e-14 * static_cast<double>(oracle));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryKernelHere, RowScanTest, testing::ValuesIn(available_row_kernels()),
                         [](const auto& param) { return std::string(param.param->name); });

}  // namespace
}  // namespace sterling::engine
