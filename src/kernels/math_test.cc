// exp, log and what is built on them, against the C library in double: stated errors in units in the last place, special values, order.
// Every tier computes the same bits (rows_test.cc), so the bounds are measured on one fast tier and spot checked on all.
#include <algorithm>
#include <limits>

#include "kernels/test_support.h"

namespace sterling::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// |found - exact| in ulps of FP32 at `exact`, which is a normal number.
double ulps(float found, double exact) {
  int exponent = 0;
  std::frexp(exact, &exponent);
  return std::fabs(double{found} - exact) / std::ldexp(1.0, exponent - 24);
}

float apply(const KernelTable& table, void (*KernelTable::*function)(const float*, float*, std::size_t), float x) {
  float y = 0.0F;
  (table.*function)(&x, &y, 1);
  return y;
}

// Calls check(x, f(x)) for the floats from `low` to `high` in steps of `step` representable values (both of one sign).
template <class Function, class Check>
void sweep(float low, float high, std::uint32_t step, const Function& function, const Check& check) {
  std::uint32_t from = std::bit_cast<std::uint32_t>(low);
  std::uint32_t to = std::bit_cast<std::uint32_t>(high);
  if (from > to) std::swap(from, to);
  std::vector<float> x, y;
  const auto flush = [&] {
    y.resize(x.size());
    function(x.data(), y.data(), x.size());
    for (std::size_t i = 0; i < x.size(); ++i) check(x[i], y[i]);
    x.clear();
  };
  for (std::uint64_t bits = from; bits <= to; bits += step) {
    x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
    if (x.size() == 4096) flush();
  }
  flush();
}

class Math : public testing::Test {
 protected:
  const KernelTable& table() const { return *host_tables().back(); }
  platform::ComputeFloatScope scope_;
};

constexpr std::uint32_t kStep = 211;  // about 10 million of the 2.2 thousand million floats with a finite, normal exp

// Over all floats the worst are 1.0086 ulp (exp) and 0.8300 ulp (log).
TEST_F(Math, ExpIsWithinItsBound) {
  double worst = 0.0;
  const auto function = table().exp;
  const auto check = [&](float x, float y) { worst = std::max(worst, ulps(y, std::exp(double{x}))); };
  sweep(0x1p-126F, 88.722831F, kStep, function, check);
  sweep(-0x1p-126F, -87.33654F, kStep, function, check);
  EXPECT_LT(worst, 1.01);
  RecordProperty("worst_ulp", std::to_string(worst));
}

TEST_F(Math, LogIsWithinItsBound) {
  double worst = 0.0;
  const auto check = [&](float x, float y) {
    if (x == 1.0F) {
      EXPECT_EQ(y, 0.0F);
    } else {
      worst = std::max(worst, ulps(y, std::log(double{x})));
    }
  };
  sweep(0x1p-126F, std::numeric_limits<float>::max(), kStep, table().log, check);
  sweep(0.9F, 1.1F, 1, table().log, check);
  EXPECT_LT(worst, 0.84);
}

// Softmax and sampling compare results: a larger argument never gives a smaller one (seen at every 1009th float).
TEST_F(Math, ExpAndLogAreMonotone) {
  float before = -kInf;
  const auto rising = [&](float x, float y) {
    ASSERT_GE(y, before) << x;
    before = y;
  };
  const auto falling = [&](float x, float y) {
    ASSERT_LE(y, before) << x;
    before = y;
  };
  sweep(0x1p-126F, std::numeric_limits<float>::max(), 1009, table().log, rising);
  before = 0.0F;
  sweep(0x1p-20F, 88.7F, 1009, table().exp, rising);
  before = kInf;
  sweep(-0x1p-20F, -87.3F, 1009, table().exp, falling);
}

class MathPerTier : public PerTier {};

TEST_P(MathPerTier, SpecialValuesOfExp) {
  const auto exp = [&](float x) { return apply(table(), &KernelTable::exp, x); };
  EXPECT_EQ(exp(0.0F), 1.0F);
  EXPECT_EQ(exp(-0.0F), 1.0F);
  EXPECT_EQ(exp(0x1p-140F), 1.0F);
  EXPECT_EQ(exp(kInf), kInf);
  EXPECT_TRUE(same_bits(exp(-kInf), 0.0F));
  EXPECT_TRUE(std::isnan(exp(kNaN)));
  EXPECT_TRUE(std::isnan(exp(-kNaN)));
  const float last = std::bit_cast<float>(0x42b17217u);  // ln FLT_MAX, rounded down
  EXPECT_LT(ulps(exp(last), std::exp(double{last})), 1.0);
  EXPECT_EQ(exp(std::nextafter(last, kInf)), kInf);
  EXPECT_EQ(exp(1e30F), kInf);
  const float first = std::bit_cast<float>(0xc2aeac4fu);  // the lowest argument with a normal result
  EXPECT_LT(ulps(exp(first), std::exp(double{first})), 1.0);
  EXPECT_GE(exp(first), 0x1p-126F);
  EXPECT_TRUE(same_bits(exp(std::nextafter(first, -kInf)), 0.0F));
  EXPECT_TRUE(same_bits(exp(-104.0F), 0.0F));
  EXPECT_TRUE(same_bits(exp(-1e30F), 0.0F));
}

TEST_P(MathPerTier, SpecialValuesOfLog) {
  const auto log = [&](float x) { return apply(table(), &KernelTable::log, x); };
  EXPECT_TRUE(same_bits(log(1.0F), 0.0F));
  EXPECT_EQ(log(0.0F), -kInf);
  EXPECT_EQ(log(-0.0F), -kInf);
  EXPECT_EQ(log(0x1p-130F), -kInf);  // a subnormal is zero
  EXPECT_EQ(log(kInf), kInf);
  EXPECT_TRUE(std::isnan(log(-1.0F)));
  EXPECT_TRUE(std::isnan(log(-kInf)));
  EXPECT_TRUE(std::isnan(log(kNaN)));
  EXPECT_LT(ulps(log(0x1p-126F), std::log(0x1p-126)), 1.0);
  EXPECT_LT(ulps(log(std::numeric_limits<float>::max()), std::log(double{std::numeric_limits<float>::max()})), 1.0);
}

TEST_P(MathPerTier, SiluAndSigmoid) {
  const float one = 1.0F;
  const auto silu = [&](float x) {
    float y = 0.0F;
    table().silu_mul(&x, &one, &y, 1);
    return y;
  };
  const auto sigmoid = [&](float x) {
    float y = 0.0F;
    table().sigmoid_mul(&one, &x, &y, 1);
    return y;
  };
  double worst_silu = 0.0, worst_sigmoid = 0.0;
  for (float x = -87.0F; x < 87.0F; x += 0.00437F) {
    worst_silu = std::max(worst_silu, ulps(silu(x), x / (1.0 + std::exp(-double{x}))));
    worst_sigmoid = std::max(worst_sigmoid, ulps(sigmoid(x), 1.0 / (1.0 + std::exp(-double{x}))));
  }
  EXPECT_LT(worst_silu, 2.5);  // exp, addition, division
  EXPECT_LT(worst_sigmoid, 2.5);
  // Below, e^-x overflows: the result is zero with the sign of the true one, which is under 2^-121.
  EXPECT_TRUE(same_bits(silu(-89.0F), -0.0F));
  EXPECT_TRUE(same_bits(silu(-1e30F), -0.0F));
  EXPECT_TRUE(std::isnan(silu(-kInf)));  // -inf / inf, as torch
  EXPECT_EQ(silu(kInf), kInf);
  EXPECT_TRUE(same_bits(sigmoid(-kInf), 0.0F));
  EXPECT_EQ(sigmoid(kInf), 1.0F);
  EXPECT_TRUE(std::isnan(silu(kNaN)) && std::isnan(sigmoid(kNaN)));
  EXPECT_TRUE(same_bits(silu(0.0F), 0.0F) && same_bits(silu(-0.0F), -0.0F));
}

// softplus is seen through gdn_gates: decay = exp(-softplus(a)) = 1 / (1 + e^a) = sigmoid(-a).
TEST_P(MathPerTier, SoftplusThroughTheGates) {
  const float one = 1.0F, zero = 0.0F;
  const auto decay = [&](float a) {
    float d = 0.0F, b = 0.0F;
    table().gdn_gates(&a, &zero, &one, &zero, &d, &b, 1);
    return d;
  };
  for (float a = -60.0F; a < 80.0F; a += 0.0173F) {
    const double softplus = a > 20.0F ? double{a} : std::log1p(std::exp(double{a}));
    ASSERT_LT(ulps(decay(a), std::exp(-softplus)), 1.5 + 6.0 * softplus)
        << a;  // the exponent's ulps are relative errors here
  }
  EXPECT_EQ(decay(-200.0F), 1.0F);
  EXPECT_TRUE(same_bits(decay(200.0F), 0.0F));
  EXPECT_TRUE(std::isnan(decay(kNaN)));
}

// Rounding to BF16 is seen through a product with 1: every kind of value, ties included.
TEST_P(MathPerTier, RoundingToBf16) {
  Random random(1);
  std::vector<float> x;
  for (const std::uint32_t bits :
       {0u, 0x80000000u, 1u, 0x807fffffu, 0x007fffffu, 0x00800000u, 0x3f808000u, 0x3f818000u, 0x3f808001u, 0x3f807fffu,
        0x7f7fffffu, 0x7f7f7fffu, 0x7f800000u, 0xff800000u, 0x7fc00000u, 0x7f800001u, 0xffffffffu}) {
    x.push_back(std::bit_cast<float>(bits));
  }
  for (int i = 0; i < 4000; ++i) x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random.next())));
  std::vector<std::uint16_t> identity(2 * kLanes, 0);
  identity[0] = 0x3f80;  // lane 0 takes the even element
  auto panel = bytes(64);
  std::memcpy(panel.data(), identity.data(), 64);
  for (const float value : x) {
    auto packed = bytes(table().packed_x_bytes_bf16(1, 1));
    table().pack_x_bf16(&value, 1, 1, 1, 0, 1, packed.data());
    float out = 5.0F;
    GemmArgs a{};
    a.x = packed.data();
    a.w = panel.data();
    a.out = &out;
    a.ldo = a.m = a.k = a.n = a.row_end = a.panel_end = 1;
    table().gemm_bf16(&a);
    // The sum starts at +0, which a negative zero leaves at +0.
    ASSERT_TRUE(same_bits(out, round_bf16(value) + 0.0F))
        << std::hex << std::bit_cast<std::uint32_t>(value) << " gave " << out;
  }
}

STERLING_FOR_EVERY_TIER(MathPerTier);

}  // namespace
}  // namespace sterling::kernels
