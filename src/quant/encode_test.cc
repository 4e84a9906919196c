// Against tests/data/encode: ml_dtypes for single codes, a numpy rendering of Model-Optimizer's rule for NVFP4 (tools/quant/make_encode_fixtures.py).
#include "quant/encode.h"

#include <bit>
#include <cmath>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "quant/float_codes.h"

namespace sterling::quant {
namespace {

template <typename T>
std::vector<T> fixture(const std::string& name) {
  std::ifstream in(std::string(STERLING_SOURCE_DIR) + "/tests/data/encode/" + name, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  EXPECT_FALSE(bytes.empty()) << name;
  std::vector<T> values(bytes.size() / sizeof(T));
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(values.data()));
  return values;
}

void expect_codes(const std::string& name, std::uint8_t (*encode)(float), std::uint8_t sign) {
  const auto values = fixture<float>("values.f32");
  const auto expected = fixture<std::uint8_t>(name);
  ASSERT_EQ(values.size(), expected.size());
  ASSERT_GT(values.size(), 1000u);
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(int{encode(values[i])}, int{expected[i]}) << name << " of " << values[i];
    EXPECT_EQ((encode(values[i]) & sign) != 0, std::signbit(values[i])) << values[i];
  }
}

TEST(Encode, E4M3AsMlDtypes) {
  expect_codes(
      "e4m3.u8", [](float x) { return float_to_e4m3(x, Overflow::kIeee); }, 0x80);
}
TEST(Encode, E5M2AsMlDtypes) {
  expect_codes(
      "e5m2.u8", [](float x) { return float_to_e5m2(x, Overflow::kIeee); }, 0x80);
}
TEST(Encode, E2M1AsMlDtypes) {
  expect_codes("e2m1.u8", float_to_e2m1, 0x08);
}

TEST(Encode, SaturatingDiffersOnlyBeyondTheRange) {
  for (const float value : fixture<float>("values.f32")) {
    const float m = std::fabs(value);
    if (m < 464.0F) {
      EXPECT_EQ(float_to_e4m3(value), float_to_e4m3(value, Overflow::kIeee)) << value;
    }
    if (m >= 448.0F) {
      EXPECT_EQ(float_to_e4m3(value) & 0x7f, 0x7e) << value;
    }
    if (m < 61440.0F) {
      EXPECT_EQ(float_to_e5m2(value), float_to_e5m2(value, Overflow::kIeee)) << value;
    }
    if (m >= 57344.0F) {
      EXPECT_EQ(float_to_e5m2(value) & 0x7f, 0x7b) << value;
    }
  }
}

TEST(Encode, NanKeepsItsSign) {
  for (const std::uint32_t bits : {0x7fc00000u, 0xffc00000u, 0x7f800001u, 0xff8fffffu}) {
    const auto nan = std::bit_cast<float>(bits);
    const int sign = bits >> 31 ? 0x80 : 0;
    EXPECT_EQ(int{float_to_e4m3(nan)}, sign | 0x7f);
    EXPECT_EQ(int{float_to_e5m2(nan)}, sign | 0x7e);
  }
}

TEST(Encode, EveryCodeComesBack) {
  for (int code = 0; code < 256; ++code) {
    const auto c = static_cast<std::uint8_t>(code);
    if ((code & 0x7f) != 0x7f) {
      EXPECT_EQ(int{float_to_e4m3(e4m3_to_float(c))}, code);
    }
    if ((code & 0x7f) <= 0x7b) {
      EXPECT_EQ(int{float_to_e5m2(e5m2_to_float(c))}, code);
    }
    if (code < 16) {
      EXPECT_EQ(int{float_to_e2m1(e2m1_to_float(c))}, code);
    }
  }
}

// Every pair of an element's code and its block's scale, against ml_dtypes' values.
TEST(Encode, Nvfp4PairsAreExactProducts) {
  const auto expected = fixture<float>("pairs.f32");
  ASSERT_EQ(expected.size(), 16u * 256u);
  for (std::size_t element = 0; element < 16; ++element) {
    for (std::size_t scale = 0; scale < 256; ++scale) {
      const float product = e2m1_table()[element] * e4m3_table()[scale];
      const float wanted = expected[element * 256 + scale];
      if (std::isnan(wanted)) {
        EXPECT_TRUE(std::isnan(product)) << element << " " << scale;
      } else {
        EXPECT_EQ(std::bit_cast<std::uint32_t>(product), std::bit_cast<std::uint32_t>(wanted))
            << element << " " << scale;
      }
    }
  }
}

TEST(Encode, Nvfp4BlocksAsModelOptimizerRoundsThem) {
  const auto values = fixture<float>("blocks.f32");
  const auto globals = fixture<float>("blocks.scale2.f32");
  const auto scales = fixture<std::uint8_t>("blocks.scale.u8");
  const auto codes = fixture<std::uint8_t>("blocks.codes.u8");
  ASSERT_EQ(values.size(), globals.size() * 64);
  for (std::size_t tensor = 0; tensor < globals.size(); ++tensor) {
    const float global = nvfp4_global_scale(largest_magnitude(std::span(values).subspan(tensor * 64, 64)));
    EXPECT_EQ(std::bit_cast<std::uint32_t>(global), std::bit_cast<std::uint32_t>(globals[tensor])) << tensor;
    for (std::size_t block = tensor * 4; block < tensor * 4 + 4; ++block) {
      std::uint8_t packed[8];
      const std::uint8_t scale = encode_nvfp4_block(values.data() + block * 16, global, ScaleSearch::kMax, packed);
      EXPECT_EQ(int{scale}, int{scales[block]}) << "block " << block;
      for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(int{packed[i]}, int{codes[block * 8 + i]}) << "block " << block;
    }
  }
}

double error_of(const float* x, float global, ScaleSearch search) {
  std::uint8_t packed[8];
  const std::uint8_t scale = encode_nvfp4_block(x, global, search, packed);
  QuantError error;
  for (std::size_t i = 0; i < 16; ++i) {
    const auto code = static_cast<std::uint8_t>(packed[i / 2] >> (i % 2 * 4));
    error.add(x[i], static_cast<double>(e2m1_to_float(code)) * e4m3_to_float(scale) * global);
  }
  return error.squared_error;
}

TEST(Encode, SearchedScalesAreNeverWorseAndOftenBetter) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0.0F, 0.02F);
  int better = 0;
  for (int round = 0; round < 500; ++round) {
    float x[16];
    for (float& value : x) value = normal(random);
    const float global = nvfp4_global_scale(0.09F);
    const double plain = error_of(x, global, ScaleSearch::kMax);
    const double searched = error_of(x, global, ScaleSearch::kMse);
    EXPECT_LE(searched, plain);
    better += searched < plain ? 1 : 0;
  }
  EXPECT_GT(better, 250);
}

TEST(Encode, Fp8UsesTheWholeRange) {
  const float x[] = {0.5F, -2.0F, 0.0F, 1.0F / 3.0F};
  const float scale = fp8_scale(largest_magnitude(x));
  EXPECT_EQ(scale, 2.0F / 448.0F);
  std::uint8_t codes[4];
  encode_fp8(x, scale, codes);
  EXPECT_EQ(int{codes[1]}, 0xfe);
  EXPECT_EQ(e4m3_to_float(codes[0]), 112.0F);
  EXPECT_EQ(int{codes[2]}, 0);
  EXPECT_EQ(e4m3_to_float(codes[3]), 72.0F);  // 74.67 lies between 72 and 80
  EXPECT_EQ(fp8_scale(0.0F), 1.0F);
}

TEST(Encode, LargestMagnitudeShowsWhatIsNotFinite) {
  const float nan = std::nanf("");
  EXPECT_TRUE(std::isnan(largest_magnitude(std::vector<float>{1.0F, nan, INFINITY})));
  EXPECT_TRUE(std::isinf(largest_magnitude(std::vector<float>{1.0F, -INFINITY})));
  EXPECT_EQ(largest_magnitude(std::vector<float>{1.0F, -3.0F}), 3.0F);
  EXPECT_EQ(largest_magnitude({}), 0.0F);
}

TEST(Encode, ErrorMetricsByHand) {
  QuantError a;
  a.add(3.0F, 2.0);
  QuantError b;
  b.add(-4.0F, -4.0);
  a.merge(b);
  EXPECT_EQ(a.max_abs, 1.0);
  EXPECT_DOUBLE_EQ(a.relative_rms(), 0.2);
  EXPECT_DOUBLE_EQ(a.sqnr_db(), 10.0 * std::log10(25.0));
  EXPECT_TRUE(std::isinf(b.sqnr_db()));
  EXPECT_EQ(QuantError{}.relative_rms(), 0.0);
}

}  // namespace
}  // namespace sterling::quant
