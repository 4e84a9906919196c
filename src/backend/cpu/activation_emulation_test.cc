// Emulated activations: each product must equal the plain one of inputs that the test rounded itself, and nothing else may change.
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "kernels/dispatch.h"
#include "platform/thread_pool.h"
#include "quant/encode.h"

namespace sterling::backend {
namespace {

using quant::ActivationFormat;

constexpr std::int64_t kRows = 5, kIn = 48, kOut = 20;

std::vector<float> random(std::size_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.0F, 2.0F);
  std::vector<float> out(count);
  for (float& value : out) value = normal(engine);
  return out;
}

struct Fixture {
  std::unique_ptr<platform::ThreadPool> pool;
  std::unique_ptr<Backend> backend;
  std::vector<float> values = random(kOut * kIn, 1);
  std::vector<LinearId> ids;

  explicit Fixture(const std::optional<ActivationEmulation>& emulation, std::vector<std::optional<float>> scales = {{}},
                   quant::WeightFormat format = quant::WeightFormat::kPlain) {
    platform::ThreadPool::Options options;
    options.threads = 2;
    pool = *platform::ThreadPool::create(options);
    backend = make_cpu_backend({Compute::kFp32, *kernels::select("scalar"), pool.get(), emulation});
    std::vector<std::uint8_t> codes(kOut * kIn, 0x38);  // E4M3 ones, or FP4 pairs
    codes[3] = 0x30;
    const float one = 1.0F;
    const std::vector<std::uint8_t> blocks(kOut * kIn / 16, 0x38);
    for (std::size_t i = 0; i < scales.size(); ++i) {
      quant::StoredWeight weight = quant::plain_weight(
          {"w" + std::to_string(i) + ".weight", DType::kF32, {kOut, kIn}, std::as_bytes(std::span(values)), "test"});
      weight.format = format;
      if (format == quant::WeightFormat::kFp8Tensor) {
        weight.codes = {"w.weight", DType::kF8E4M3, {kOut, kIn}, std::as_bytes(std::span(codes)), "test"};
        weight.scale = TensorView{"w.weight_scale", DType::kF32, {}, std::as_bytes(std::span(&one, 1)), "test"};
      } else if (format == quant::WeightFormat::kNvfp4) {
        weight.codes = {
            "w.weight", DType::kU8, {kOut, kIn / 2}, std::as_bytes(std::span(codes)).first(kOut * kIn / 2), "test"};
        weight.scale =
            TensorView{"w.weight_scale", DType::kF8E4M3, {kOut, kIn / 16}, std::as_bytes(std::span(blocks)), "test"};
        weight.global_scale =
            TensorView{"w.weight_scale_2", DType::kF32, {}, std::as_bytes(std::span(&one, 1)), "test"};
      }
      if (scales[i]) {
        weight.input_scale =
            TensorView{"w.input_scale", DType::kF32, {}, std::as_bytes(std::span(&*scales[i], 1)), "test"};
      }
      const auto id = backend->load_linear(weight, nullptr, {}, ProductInput::kActivation);
      EXPECT_TRUE(id.ok()) << (id ? "" : id.error().message);
      ids.push_back(*id);
    }
    ModelSpec spec;
    spec.hidden_size = kIn;
    PoolOptions pools;
    pools.max_batch_tokens = kRows;
    pools.max_batch_slices = 1;
    EXPECT_TRUE(backend->configure(spec, pools).ok());
  }

  // All the weights at once, one output after another.
  std::vector<float> run(std::vector<float> x) {
    std::vector<float> out(ids.size() * kRows * kOut);
    std::vector<Matrix> targets;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      targets.push_back({out.data() + i * kRows * kOut, kRows, kOut, kOut});
    }
    backend->linear({x.data(), kRows, kIn, kIn}, ids, targets, false);
    return out;
  }
};

std::vector<float> rounded(std::vector<float> x, ActivationFormat format, float scale) {
  for (std::int64_t row = 0; row < kRows; ++row) {
    const std::span<float> values = std::span(x).subspan(static_cast<std::size_t>(row * kIn), kIn);
    const float largest = quant::largest_magnitude(values);
    if (format == ActivationFormat::kNvfp4) {
      quant::round_nvfp4(values, scale > 0 ? scale : largest / 2688.0F);
    } else {
      quant::round_fp8(values, scale > 0 ? scale : largest / 448.0F);
    }
  }
  return x;
}

ActivationEmulation everywhere(ActivationFormat format) {
  return {format, [](const quant::StoredWeight&) { return true; }};
}

TEST(ActivationEmulation, RoundsInputsByTheRuleOfEachFormat) {
  const std::vector<float> x = random(kRows * kIn, 2);
  Fixture plain(std::nullopt);
  const float of_step = quant::largest_magnitude(x) / 448.0F;
  for (const auto format : {ActivationFormat::kFp8Tensor, ActivationFormat::kFp8Token, ActivationFormat::kNvfp4}) {
    Fixture emulated(everywhere(format));
    const float scale = format == ActivationFormat::kFp8Tensor ? of_step : 0.0F;
    EXPECT_EQ(emulated.run(x), plain.run(rounded(x, format, scale))) << quant::activation_format_name(format);
    EXPECT_NE(emulated.run(x), plain.run(x));
  }
}

TEST(ActivationEmulation, OnlyChosenWeightsAndNeverTheLogits) {
  const std::vector<float> x = random(kRows * kIn, 3);
  Fixture plain(std::nullopt, {{}, {}});
  Fixture emulated(
      {{ActivationFormat::kNvfp4, [](const quant::StoredWeight& w) { return w.codes.name == "w1.weight"; }}}, {{}, {}});
  const std::vector<float> exact = plain.run(x);
  const std::vector<float> approximate = plain.run(rounded(x, ActivationFormat::kNvfp4, 0.0F));
  const std::vector<float> found = emulated.run(x);
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i], i < found.size() / 2 ? exact[i] : approximate[i]);
  }
  std::vector<float> logits(kRows * kOut);
  std::vector<float> input = x;
  emulated.backend->logits({input.data(), kRows, kIn, kIn}, emulated.ids[1], logits);
  EXPECT_TRUE(std::equal(logits.begin(), logits.end(), exact.begin()));
}

TEST(ActivationEmulation, CalibratedScalesOfTheFormatAreUsedTheLargestOfAFusedProduct) {
  const std::vector<float> x = random(kRows * kIn, 4);
  struct Case {
    ActivationFormat activations;
    quant::WeightFormat weights;
    float used;
  };
  // NVFP4's scale isn't FP8's: a checkpoint of the other format leaves each row to itself.
  for (const Case& c : {Case{ActivationFormat::kFp8Tensor, quant::WeightFormat::kFp8Tensor, 0.5F},
                        Case{ActivationFormat::kNvfp4, quant::WeightFormat::kNvfp4, 0.5F},
                        Case{ActivationFormat::kFp8Token, quant::WeightFormat::kFp8Tensor, 0.0F},
                        Case{ActivationFormat::kNvfp4, quant::WeightFormat::kFp8Tensor, 0.0F}}) {
    Fixture plain(std::nullopt, {0.25F, 0.5F}, c.weights);
    Fixture emulated(everywhere(c.activations), {0.25F, 0.5F}, c.weights);
    EXPECT_EQ(emulated.run(x), plain.run(rounded(x, c.activations, c.used)));
  }
}

}  // namespace
}  // namespace sterling::backend
