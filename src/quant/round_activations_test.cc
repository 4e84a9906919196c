#include "quant/round_activations.h"

#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "quant/encode.h"
#include "quant/float_codes.h"

namespace sterling::quant {
namespace {

std::vector<float> random_row(std::size_t n, unsigned seed, float spread) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.0F, spread);
  std::vector<float> row(n);
  for (float& value : row) value = normal(engine);
  return row;
}

TEST(RoundActivations, NamesGoBothWays) {
  for (const char* name : {"fp8_tensor", "fp8_token", "nvfp4"}) {
    const auto format = activation_format_from_name(name);
    ASSERT_TRUE(format.has_value());
    EXPECT_EQ(activation_format_name(*format), name);
  }
  EXPECT_FALSE(activation_format_from_name("int8").has_value());
}

// Where the block's scale lies within E4M3's range, activations follow the rule of weights, which has its own tests and decoder.
TEST(RoundActivations, Nvfp4BlocksAreThoseOfTheWeightEncoder) {
  std::vector<float> row = random_row(160, 1, 3.0F);
  const float global = nvfp4_row_scale(row);
  std::vector<float> rounded = row;
  round_nvfp4(rounded, global);
  for (std::size_t begin = 0; begin < row.size(); begin += 16) {
    std::array<std::uint8_t, 8> codes{};
    const std::uint8_t scale = encode_nvfp4_block(row.data() + begin, global, ScaleSearch::kMax, codes.data());
    for (std::size_t i = 0; i < 16; ++i) {
      const auto nibble = static_cast<std::uint8_t>(i % 2 == 0 ? codes[i / 2] & 15 : codes[i / 2] >> 4);
      EXPECT_EQ(rounded[begin + i], e2m1_to_float(nibble) * (e4m3_to_float(scale) * global)) << begin + i;
    }
  }
}

TEST(RoundActivations, Nvfp4ByHand) {
  // input_scale 1/6: the block's scale is e4m3(6 / 1) = 6, a step of 1 is 1 * 6 / 6 = 1.
  std::vector<float> row = {6.0F, 0.2F, 0.3F, -0.75F, 2.6F, -5.1F, 0.0F, 1.0F};
  round_nvfp4(row, 1.0F / 6.0F);
  const float step = 6.0F * (1.0F / 6.0F);
  EXPECT_EQ(row, (std::vector<float>{6 * step, 0.0F, 0.5F * step, -1 * step, 3 * step, -6 * step, 0.0F, step}));
}

TEST(RoundActivations, Nvfp4SaturatesAboveACalibratedScaleAndDropsTinyBlocks) {
  std::vector<float> big(16, 1.0F);
  big[3] = 10000.0F;
  round_nvfp4(big, 1.0F);  // s = min(448, 10000 / 6): the largest value is 6 * 448
  EXPECT_EQ(big[3], 2688.0F);
  EXPECT_EQ(big[0], 0.0F);
  std::vector<float> tiny(16, 1e-4F);
  round_nvfp4(tiny, 1.0F);  // s rounds to 0
  EXPECT_EQ(tiny, std::vector<float>(16, 0.0F));
  std::vector<float> bad = {1.1F, std::numeric_limits<float>::quiet_NaN()};
  round_nvfp4(bad, 1.0F);
  EXPECT_EQ(bad[0], 1.1F);
}

TEST(RoundActivations, Fp8IsTheNearestCodeTimesTheScale) {
  const std::vector<float> row = random_row(1000, 2, 40.0F);
  constexpr float kScale = 0.25F;
  std::vector<float> rounded = row;
  round_fp8(rounded, kScale);
  for (std::size_t i = 0; i < row.size(); ++i) {
    float best = 0.0F;
    for (int code = 0; code < 256; ++code) {
      const float value = e4m3_to_float(static_cast<std::uint8_t>(code)) * kScale;
      if (std::abs(value - row[i]) < std::abs(best - row[i])) best = value;
    }
    EXPECT_EQ(std::abs(rounded[i] - row[i]), std::abs(best - row[i])) << row[i];
  }
}

}  // namespace
}  // namespace sterling::quant
