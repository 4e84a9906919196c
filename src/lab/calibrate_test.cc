#include "lab/calibrate.h"

#include <cmath>
#include <fstream>
#include <limits>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/kv_scales_file.h"

namespace sterling::lab {
namespace {

// Two attention layers between two others, two KV heads of 8.
ModelSpec spec() {
  ModelSpec spec;
  spec.layers = {LayerKind::kLinearAttention, LayerKind::kFullAttention, LayerKind::kLinearAttention,
                 LayerKind::kFullAttention};
  spec.attention.heads = 4;
  spec.attention.kv_heads = 2;
  spec.attention.head_dim = 8;
  return spec;
}

// [2][tokens][8]; head 1 is `ratio` times larger than head 0, and one channel of it larger still.
std::vector<float> values(std::size_t tokens, std::uint32_t seed, float ratio = 100.0F) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> draw;
  std::vector<float> out(2 * tokens * 8);
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = draw(engine) * (i >= tokens * 8 ? ratio : 1.0F);
    if (i >= tokens * 8 && i % 8 == 5) out[i] *= 20.0F;
  }
  return out;
}

std::vector<CalibratedLayer> calibrate(const CalibrateOptions& options,
                                       const std::vector<std::vector<float>>& prompts) {
  const ModelSpec model = spec();
  Calibration calibration(model, options);
  for (const bool second : {false, true}) {
    if (second) calibration.choose();
    for (const auto& prompt : prompts) {
      for (std::int64_t index = 0; index < 2; ++index) {
        for (const bool value : {false, true}) {
          if (second) {
            calibration.second(index, value, prompt);
          } else {
            EXPECT_TRUE(calibration.first(index, value, prompt).ok());
          }
        }
      }
    }
  }
  return calibration.finish();
}

double error_at(const std::vector<std::vector<float>>& prompts, float scale, std::size_t head) {
  ScaleCost cost{.scale = scale};
  for (const auto& prompt : prompts) {
    add_cost(plan::KvType::kFp8E4m3, std::span(prompt).subspan(head * prompt.size() / 2, prompt.size() / 2), cost);
  }
  return cost.squared_error;
}

TEST(Calibrate, NamesTheModelsLayersAndTheWorstChannel) {
  const auto layers = calibrate({.method = ScaleMethod::kAmax}, {values(50, 1)});
  ASSERT_EQ(layers.size(), 2U);
  EXPECT_EQ(layers[0].layer, 1);
  EXPECT_EQ(layers[1].layer, 3);
  ASSERT_EQ(layers[0].k.worst.size(), 3U);
  EXPECT_EQ(layers[0].k.worst[0].head, 1);
  EXPECT_EQ(layers[0].k.worst[0].dim, 5);
  EXPECT_GT(layers[0].k.worst[0].ratio, 5.0);
  const CalibratedUnit& unit = layers[0].k.units.front();
  EXPECT_EQ(unit.head, -1);
  EXPECT_EQ(unit.chosen.clipped, 0);
  EXPECT_NEAR(unit.chosen.scale, unit.amax / 448.0F, 1e-6F * unit.chosen.scale);
  EXPECT_GT(unit.unit.clipped, 0) << "values over 448 clip at 1.0";
}

TEST(Calibrate, SquaredErrorIsTheLeastOfAllCandidates) {
  const std::vector<std::vector<float>> prompts = {values(40, 2), values(70, 3)};
  const auto layers = calibrate({.method = ScaleMethod::kMse, .per_head = true}, prompts);
  for (std::size_t head = 0; head < 2; ++head) {
    const CalibratedUnit& unit = layers[1].v.units[head];
    EXPECT_EQ(unit.head, static_cast<std::int64_t>(head));
    const double chosen = error_at(prompts, unit.chosen.scale, head);
    EXPECT_NEAR(unit.chosen.squared_error, chosen, 1e-9 * chosen);
    for (int step = 0; step < 25; ++step) {
      const float other = unit.amax / 448.0F * static_cast<float>(std::exp2(-step / 8.0));
      EXPECT_LE(chosen, error_at(prompts, other, head) * 1.0001) << step;
    }
  }
  EXPECT_GT(layers[1].v.units[1].chosen.scale, 20.0F * layers[1].v.units[0].chosen.scale);
}

TEST(Calibrate, OrderOfPromptsDoesNotMatter) {
  const auto a = calibrate({}, {values(40, 2), values(70, 3)});
  const auto b = calibrate({}, {values(70, 3), values(40, 2)});
  EXPECT_EQ(a[0].k.units[0].chosen.scale, b[0].k.units[0].chosen.scale);
  EXPECT_EQ(a[0].k.octaves, b[0].k.octaves);
}

// Under the large head's scale the whole small head is stored as zero. (Where both fit the format's range, a floating-point code is about
// as good at either scale, and a head's own candidates may be a hair worse than the other's.)
TEST(Calibrate, PerHeadSavesTheHeadThatTheTensorsScaleLoses) {
  const std::vector<std::vector<float>> prompts = {values(64, 5, 1e6F)};
  const auto tensor = calibrate({}, prompts);
  const auto head = calibrate({.per_head = true}, prompts);
  const ScaleCost& together = tensor[0].k.units[0].chosen;
  EXPECT_EQ(together.underflowed, 64 * 8);
  EXPECT_EQ(head[0].k.units[0].chosen.underflowed, 0);
  EXPECT_LT(head[0].k.units[0].chosen.squared_error, error_at(prompts, together.scale, 0) / 100.0);
  EXPECT_EQ(head[0].k.units[1].chosen.scale, together.scale);
}

TEST(Calibrate, NonFiniteValuesAreNamed) {
  const ModelSpec model = spec();
  Calibration calibration(model, {});
  std::vector<float> bad = values(4, 1);
  bad[3] = std::numeric_limits<float>::infinity();
  const Status status = calibration.first(1, true, bad);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, testing::HasSubstr("layer 3: 1 of V's elements are not finite"));
}

TEST(Calibrate, ScaleFilesAreReadBackAsWritten) {
  for (const bool per_head : {false, true}) {
    const auto layers = calibrate({.per_head = per_head}, {values(64, 6)});
    const auto scales = calibrated_scales(layers);
    const std::string path = testing::TempDir() + "/calibrate_test.json";
    std::ofstream(path) << boost::json::serialize(formats::kv_scales_json(scales, {{"made_by", "a test"}}));
    const auto file = formats::read_kv_scales_file(path);
    ASSERT_TRUE(file.ok()) << file.error().message;
    ASSERT_EQ(file->layers.size(), 2U);
    for (const auto& [layer, values] : scales) {
      EXPECT_EQ(file->layers.at(layer).k, values.k);
      EXPECT_EQ(file->layers.at(layer).v, values.v);
    }
  }
}

TEST(Calibrate, TextAndJsonHoldARowPerScale) {
  const auto layers = calibrate({.per_head = true}, {values(64, 7)});
  const boost::json::array json = calibration_json(layers);
  ASSERT_EQ(json.size(), 2U);
  EXPECT_EQ(json[1].at("layer").as_int64(), 3);
  EXPECT_EQ(json[1].at("k").at("scales").as_array().size(), 2U);
  std::int64_t counted = json[0].at("k").at("zeros").as_int64();
  for (const auto& pair : json[0].at("k").at("log2_histogram").as_array()) counted += pair.at(1).as_int64();
  EXPECT_EQ(counted, 2 * 64 * 8);
  EXPECT_THAT(calibration_text(layers), testing::HasSubstr("head 1 dim 5"));
}

}  // namespace
}  // namespace sterling::lab
