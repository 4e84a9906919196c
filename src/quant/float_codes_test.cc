// Against tests/data/float_codes, made with ml_dtypes (tools/quant/make_float_codes.py).
#include "quant/float_codes.h"

#include <bit>
#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace sterling::quant {
namespace {

std::vector<float> oracle(const std::string& name, std::size_t count) {
  std::ifstream in(std::string(STERLING_SOURCE_DIR) + "/tests/data/float_codes/" + name + ".f32", std::ios::binary);
  std::vector<float> values(count);
  in.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(count * sizeof(float)));
  EXPECT_EQ(in.gcount(), static_cast<std::streamsize>(count * sizeof(float))) << name;
  return values;
}

template <std::size_t N>
void expect_equal(const std::string& name, float (*decode)(std::uint8_t), const std::array<float, N>& table) {
  const std::vector<float> expected = oracle(name, N);
  for (std::size_t code = 0; code < N; ++code) {
    const float value = decode(static_cast<std::uint8_t>(code));
    EXPECT_EQ(std::bit_cast<std::uint32_t>(value), std::bit_cast<std::uint32_t>(table[code])) << name << " " << code;
    if (std::isnan(expected[code])) {
      EXPECT_TRUE(std::isnan(value)) << name << " " << code;
    } else {
      // Bits, so that zeros keep their sign.
      EXPECT_EQ(std::bit_cast<std::uint32_t>(value), std::bit_cast<std::uint32_t>(expected[code]))
          << name << " " << code;
    }
  }
}

TEST(FloatCodes, E4M3) {
  expect_equal("e4m3", e4m3_to_float, e4m3_table());
}
TEST(FloatCodes, E5M2) {
  expect_equal("e5m2", e5m2_to_float, e5m2_table());
}
TEST(FloatCodes, E8M0) {
  expect_equal("e8m0", e8m0_to_float, e8m0_table());
}
TEST(FloatCodes, E2M1) {
  expect_equal("e2m1", e2m1_to_float, e2m1_table());
}

TEST(FloatCodes, E2M1IgnoresTheHighNibble) {
  EXPECT_EQ(e2m1_to_float(0xf7), 6.0f);
}

}  // namespace
}  // namespace sterling::quant
