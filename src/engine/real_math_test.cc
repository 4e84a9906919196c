#include "engine/real_math.h"

#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

namespace sterling::engine {
namespace {

// Oracle: the C library in long double (64-bit mantissa).
TEST(ExpNonpositive, WithinItsBound) {
  std::mt19937_64 random(1);
  double worst = 0.0;
  for (int i = 0; i < 400000; ++i) {
    const double scale = i % 2 == 0 ? 700.0 : 5.0;
    const double x = -scale * static_cast<double>(random() >> 11) * 0x1p-53;
    const long double exact = expl(static_cast<long double>(x));
    worst = std::max(worst, static_cast<double>(fabsl((static_cast<long double>(exp_nonpositive(x)) - exact) / exact)));
  }
  EXPECT_LT(worst, 4e-16);
  EXPECT_GT(worst, 1e-18);
}

TEST(ExpNonpositive, Edges) {
  EXPECT_EQ(exp_nonpositive(0.0), 1.0);
  EXPECT_EQ(exp_nonpositive(-0.0), 1.0);
  EXPECT_EQ(exp_nonpositive(-0x1p-1074), 1.0);
  EXPECT_GT(exp_nonpositive(-700.0), 0.0);
  EXPECT_EQ(exp_nonpositive(std::nextafter(-700.0, -701.0)), 0.0);
  EXPECT_EQ(exp_nonpositive(-1e300), 0.0);
  EXPECT_EQ(exp_nonpositive(-std::numeric_limits<double>::infinity()), 0.0);
}

TEST(ExpNonpositive, NeverAboveOne) {
  for (int i = 0; i < 100000; ++i) EXPECT_LE(exp_nonpositive(-i * 0x1p-56), 1.0);
}

TEST(LogPositive, WithinItsBound) {
  std::mt19937_64 random(2);
  const auto check = [](double x) {
    const long double exact = logl(static_cast<long double>(x));
    const double error = static_cast<double>(fabsl(static_cast<long double>(log_positive(x)) - exact));
    const double bound =
        2.0 * std::numeric_limits<double>::epsilon() * std::max(std::fabs(static_cast<double>(exact)), 0.5);
    EXPECT_LE(error, bound) << x;
  };
  for (int i = 0; i < 200000; ++i) {
    const double u = static_cast<double>(random() >> 11) * 0x1p-53;
    check(1.0 + u);               // near 1, where sums of one dominant weight lie
    check(1.0 + u * u * 248320);  // sums over a vocabulary
    check(std::ldexp(0.5 + u, static_cast<int>(random() % 2000) - 1000));
  }
  EXPECT_EQ(log_positive(1.0), 0.0);
  check(1.0 + 0x1p-52);
  check(std::numeric_limits<double>::max());
  check(std::numeric_limits<double>::min());
}

}  // namespace
}  // namespace sterling::engine
