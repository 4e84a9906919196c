// Norms, RoPE and element-wise operations: every tier against the contract in plain loops over all remainders, and double precision.
#include <algorithm>

#include "kernels/test_support.h"

namespace sterling::kernels {
namespace {

std::vector<float> values(std::size_t count, std::uint64_t seed, bool infinite = false) {
  Random random(seed);
  std::vector<float> result(count);
  for (float& v : result) v = random.hostile(infinite);
  return result;
}

class Rows : public PerTier {};

// (rows of n within a stride of n + 3) → f(row values, row index) must equal what `kernel` writes.
template <class Kernel, class F>
void check_rows(int n, const std::vector<float>& x, const Kernel& kernel, const F& f) {
  const std::size_t ld = static_cast<std::size_t>(n) + 3;
  const std::size_t rows = x.size() / ld;
  std::vector<float> expected(x.size(), 5.0F);
  for (std::size_t r = 0; r < rows; ++r) {
    const auto begin = x.begin() + static_cast<std::ptrdiff_t>(r * ld);
    const std::vector<float> y = f(std::vector<float>(begin, begin + n), r);
    std::copy(y.begin(), y.end(), expected.begin() + static_cast<std::ptrdiff_t>(r * ld));
  }
  std::vector<float> out(x.size(), 5.0F);
  kernel(x.data(), ld, static_cast<int>(rows), out.data());
  STERLING_EXPECT_BITS(out, expected, "n " << n << " at " << difference);
}

TEST_P(Rows, Norms) {
  for (int n = 1; n <= 70; ++n) {
    const auto size = static_cast<std::size_t>(n);
    const std::size_t ld = size + 3;
    const auto x = values(3 * ld, size);
    const auto z = values(3 * ld, size + 1000);
    const auto w = values(size, size + 2000);
    const float eps = 1e-6F;
    const auto normed = [&](const std::vector<float>& row) {
      const float factor = 1.0F / std::sqrt(naive::lane_sum_of_squares(row) / static_cast<float>(n) + eps);
      std::vector<float> y;
      for (std::size_t i = 0; i < size; ++i) y.push_back((row[i] * factor) * w[i]);
      return y;
    };
    check_rows(
        n, x,
        [&](const float* from, std::size_t stride, int rows, float* out) {
          table().rms_norm(from, stride, w.data(), eps, n, rows, out, stride);
        },
        [&](const std::vector<float>& row, std::size_t) { return normed(row); });
    check_rows(
        n, x,
        [&](const float* from, std::size_t stride, int rows, float* out) {
          table().rms_norm_gated(from, stride, z.data(), ld, w.data(), eps, n, rows, out, stride);
        },
        [&](const std::vector<float>& row, std::size_t r) {
          std::vector<float> y = normed(row);
          for (std::size_t i = 0; i < size; ++i) y[i] = y[i] * naive::silu(z[r * ld + i]);
          return y;
        });
    check_rows(
        n, x,
        [&](const float* from, std::size_t stride, int rows, float* out) {
          table().l2_norm(from, stride, eps, 0.25F, n, rows, out, stride);
        },
        [&](const std::vector<float>& row, std::size_t) {
          const float factor = 1.0F / std::sqrt(naive::lane_sum_of_squares(row) + eps);
          std::vector<float> y;
          for (const float v : row) y.push_back((v * factor) * 0.25F);
          return y;
        });
  }
}

TEST_P(Rows, NormsInPlace) {
  const int n = 37;
  auto x = values(5 * 40, 3);
  const auto w = values(37, 4);
  std::vector<float> out(x.size());
  std::copy(x.begin(), x.end(), out.begin());
  table().rms_norm(x.data(), 40, w.data(), 1e-5F, n, 5, out.data(), 40);
  table().rms_norm(x.data(), 40, w.data(), 1e-5F, n, 5, x.data(), 40);
  STERLING_EXPECT_BITS(x, out, "at " << difference);
}

// Relative error of the factor: (n / 16 + 4 folds) additions of positive terms, then division, addition, root, reciprocal.
TEST_P(Rows, NormsWithinTheBoundOfDoublePrecision) {
  for (const int n : {1, 128, 576, 5120}) {
    Random random(static_cast<std::uint64_t>(n));
    std::vector<float> x(static_cast<std::size_t>(n)), w(x.size()), out(x.size());
    double squares = 0.0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = random.normal();
      w[i] = 1.0F + random.normal();
      squares += double{x[i]} * double{x[i]};
    }
    table().rms_norm(x.data(), x.size(), w.data(), 1e-6F, n, 1, out.data(), x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double exact = x[i] / std::sqrt(squares / n + double{1e-6F}) * double{w[i]};
      const double roundings = ((n + 15) / 16 + 4 + 2) / 2.0 + 2 + 2;
      ASSERT_LE(std::fabs(out[i] - exact), 1.01 * roundings * 0x1p-24 * std::fabs(exact)) << n << " at " << i;
    }
  }
}

TEST_P(Rows, Rope) {
  for (int half = 1; half <= 40; ++half) {
    const auto h = static_cast<std::size_t>(half);
    const std::size_t ld = 2 * h + 5;
    auto x = values(4 * ld, h);
    const auto c = values(h, h + 100);
    const auto s = values(h, h + 200);
    auto expected = x;
    for (std::size_t r = 0; r < 4; ++r) {
      for (std::size_t i = 0; i < h; ++i) {
        const float a = x[r * ld + i];
        const float b = x[r * ld + h + i];
        const float first = a * c[i], second = b * s[i], third = b * c[i], fourth = a * s[i];
        expected[r * ld + i] = first - second;
        expected[r * ld + h + i] = third + fourth;
      }
    }
    table().rope(x.data(), ld, c.data(), s.data(), half, 4);
    STERLING_EXPECT_BITS(x, expected, "half " << half << " at " << difference);
  }
}

TEST_P(Rows, ElementWise) {
  for (std::size_t n = 0; n <= 70; ++n) {
    const auto a = values(n, n + 1, true);
    const auto b = values(n, n + 2, true);
    std::vector<float> out(n + 1, 4.0F), expected(n + 1, 4.0F);
    const auto check = [&](const char* name) {
      STERLING_EXPECT_BITS(out, expected, name << " n " << n << " at " << difference);
    };
    table().silu_mul(a.data(), b.data(), out.data(), n);
    for (std::size_t i = 0; i < n; ++i) expected[i] = naive::silu(a[i]) * b[i];
    check("silu_mul");
    table().sigmoid_mul(a.data(), b.data(), out.data(), n);
    for (std::size_t i = 0; i < n; ++i) expected[i] = a[i] * naive::sigmoid(b[i]);
    check("sigmoid_mul");
    table().add(a.data(), b.data(), out.data(), n);
    for (std::size_t i = 0; i < n; ++i) expected[i] = a[i] + b[i];
    check("add");
    auto in_place = a;
    in_place.push_back(4.0F);
    table().add(in_place.data(), b.data(), in_place.data(), n);
    STERLING_EXPECT_BITS(in_place, expected, "in place at " << difference);
    table().exp(a.data(), out.data(), n);
    scalar_table()->exp(a.data(), expected.data(), n);
    check("exp");
    table().log(a.data(), out.data(), n);
    scalar_table()->log(a.data(), expected.data(), n);
    check("log");
  }
}

TEST_P(Rows, GdnGates) {
  for (int heads = 1; heads <= 40; ++heads) {
    const auto n = static_cast<std::size_t>(heads);
    Random random(n);
    std::vector<float> a(n), b(n), rate(n), bias(n), decay(n), beta(n), scalar_decay(n), scalar_beta(n);
    for (std::size_t i = 0; i < n; ++i) {
      a[i] = 12.0F * random.normal();
      b[i] = 5.0F * random.normal();
      rate[i] = std::fabs(random.normal());
      bias[i] = random.normal();
    }
    table().gdn_gates(a.data(), b.data(), rate.data(), bias.data(), decay.data(), beta.data(), heads);
    scalar_table()->gdn_gates(a.data(), b.data(), rate.data(), bias.data(), scalar_decay.data(), scalar_beta.data(),
                              heads);
    STERLING_EXPECT_BITS(decay, scalar_decay, "decay " << difference);
    STERLING_EXPECT_BITS(beta, scalar_beta, "beta " << difference);
    for (std::size_t i = 0; i < n; ++i) {
      const double x = double{a[i] + bias[i]};
      const double exponent = double{rate[i]} * (x > 20 ? x : std::log1p(std::exp(x)));
      // softplus (3 ulp), the product and exp (1 ulp each): an error in the exponent is a relative one of the result.
      const double exact = std::exp(-exponent);
      ASSERT_NEAR(decay[i], exact, exact * (exponent * 4 + 1) * 0x1p-23 + 0x1p-126) << i;
      ASSERT_TRUE(same_bits(beta[i], naive::sigmoid(b[i])));
    }
  }
}

STERLING_FOR_EVERY_TIER(Rows);

}  // namespace
}  // namespace sterling::kernels
