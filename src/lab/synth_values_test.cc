#include "lab/synth_values.h"

#include <cmath>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "base/float_types.h"
#include "quant/float_codes.h"

namespace sterling::lab {
namespace {

std::vector<std::byte> drawn(const ValueTable& table, std::uint64_t key, std::uint64_t first, std::size_t count) {
  std::vector<std::byte> out(count * table.element_bytes);
  draw(table, key, first, out);
  return out;
}

TEST(SynthValues, AnyPartEqualsTheWhole) {
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    const ValueTable table = plain_table(dtype, {});
    const auto whole = drawn(table, 9, 0, 1001);
    for (const std::size_t first : {0u, 4u, 500u, 996u}) {
      for (const std::size_t count : {1u, 3u, 4u, 5u}) {
        const auto part = drawn(table, 9, first, count);
        EXPECT_EQ(std::memcmp(part.data(), whole.data() + first * table.element_bytes, part.size()), 0);
      }
    }
  }
  const CodeTables fp4 = nvfp4_tables();
  EXPECT_EQ(fp4.codes.element_bytes, 1u);
  const auto whole = drawn(fp4.codes, 1, 0, 11);
  EXPECT_EQ(drawn(fp4.codes, 1, 8, 3), std::vector<std::byte>(whole.begin() + 8, whole.end()));
}

TEST(SynthValues, KeysDependOnSeedAndName) {
  EXPECT_EQ(tensor_key(1, "a"), tensor_key(1, "a"));
  EXPECT_NE(tensor_key(1, "a"), tensor_key(2, "a"));
  EXPECT_NE(tensor_key(1, "a"), tensor_key(1, "b"));
}

// Mean 0, variance 1, fourth moment 3, no correlation between neighbours; bounds are six standard errors and more.
TEST(SynthValues, NormalMoments) {
  const ValueTable table = plain_table(DType::kF32, {});
  constexpr std::size_t kCount = 1 << 20;
  const auto bytes = drawn(table, tensor_key(0, "t"), 0, kCount);
  std::vector<float> x(kCount);
  std::memcpy(x.data(), bytes.data(), bytes.size());
  double sum = 0.0, squares = 0.0, fourth = 0.0, neighbours = 0.0;
  for (std::size_t i = 0; i < kCount; ++i) {
    const double v = x[i];
    sum += v;
    squares += v * v;
    fourth += v * v * v * v;
    if (i > 0) neighbours += v * x[i - 1];
  }
  EXPECT_NEAR(sum / kCount, 0.0, 0.006);
  EXPECT_NEAR(squares / kCount, 1.0, 0.01);
  EXPECT_NEAR(fourth / kCount, 3.0, 0.06);
  EXPECT_NEAR(neighbours / kCount, 0.0, 0.006);
}

TEST(SynthValues, UniformStaysWithinAndFillsItsRange) {
  const ValueTable table = plain_table(DType::kF32, {-2.0, 1.5, true});
  float low = 0.0F, high = -9.0F;
  for (std::size_t i = 0; i < 65536; ++i) {
    float value = 0.0F;
    std::memcpy(&value, table.values.data() + 4 * i, 4);
    low = std::min(low, value);
    high = std::max(high, value);
  }
  EXPECT_NEAR(low, -3.5, 1e-3);
  EXPECT_NEAR(high, -0.5, 1e-3);
}

TEST(SynthValues, CodesHaveTheirUnit) {
  const CodeTables fp4 = nvfp4_tables();
  const CodeTables fp8 = fp8_tables();
  double codes4 = 0.0, scales4 = 0.0, codes8 = 0.0;
  int largest_scale = 0;
  for (std::size_t i = 0; i < 65536; ++i) {
    const auto pair = std::to_integer<std::uint8_t>(fp4.codes.values[i]);
    codes4 += std::pow(quant::e2m1_to_float(pair & 15), 2) + std::pow(quant::e2m1_to_float(pair >> 4), 2);
    const auto scale = std::to_integer<std::uint8_t>(fp4.scales.values[i]);
    largest_scale = std::max<int>(largest_scale, scale);
    EXPECT_GT(quant::e4m3_to_float(scale), 0.0F);
    scales4 += std::pow(quant::e4m3_to_float(scale), 2);
    codes8 += std::pow(quant::e4m3_to_float(std::to_integer<std::uint8_t>(fp8.codes.values[i])), 2);
  }
  EXPECT_NEAR(fp4.unit * std::sqrt(codes4 / 131072 * scales4 / 65536), 1.0, 1e-9);
  EXPECT_NEAR(fp8.unit * std::sqrt(codes8 / 65536), 1.0, 1e-9);
  EXPECT_LE(largest_scale, 0x7e);
}

}  // namespace
}  // namespace sterling::lab
