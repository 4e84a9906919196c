// Published configurations: parameters, bytes and wishes. Expected totals are those of the published checkpoints or arithmetic on their shapes.
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include "formats/test_support.h"
#include "lab/inspect.h"

namespace sterling::lab {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

// Qwen3.5-2B: its published index says total_size 4548144832.
constexpr std::string_view kQwen35Of2B =
    R"({"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5",
  "tie_word_embeddings": true, "torch_dtype": "bfloat16",
  "vision_config": {"depth": 24, "hidden_size": 1024, "in_channels": 3, "intermediate_size": 4096, "num_heads": 16,
    "num_position_embeddings": 2304, "patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2, "out_hidden_size": 2048},
  "text_config": {"model_type": "qwen3_5_text", "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 24,
    "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256, "vocab_size": 248320, "hidden_act": "silu",
    "rms_norm_eps": 1e-6, "max_position_embeddings": 262144, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 16, "full_attention_interval": 4,
    "mtp_num_hidden_layers": 1, "attention_bias": false, "attn_output_gate": true, "tie_word_embeddings": true,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000000, "partial_rotary_factor": 0.25}}})";

TEST(InspectConfiguration, BytesOfAPublishedIndexToTheByte) {
  const formats::TemporaryFolder folder;
  folder.write("config.json", kQwen35Of2B);
  const auto inspection = inspect(folder.path());
  ASSERT_TRUE(inspection.ok()) << inspection.error().message;
  EXPECT_EQ(inspection->unsupported_reason.value_or(""), "");
  EXPECT_EQ(inspection->parameters.text, 1'881'825'088);
  EXPECT_EQ(inspection->parameters.mtp, 60'828'160);
  EXPECT_EQ(inspection->parameters.vision, 331'416'576);
  ASSERT_TRUE(inspection->bytes.has_value());
  EXPECT_EQ(inspection->bytes->total, 4'548'144'832);
  EXPECT_FALSE(inspection->loadable);
}

TEST(InspectConfiguration, QuantisedBytesFollowTheMetadata) {
  const formats::TemporaryFolder folder;
  const std::string config = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32,
    "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 10,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": false,
    "rope_theta": 10000.0, "torch_dtype": "bfloat16"})";
  folder.write("config.json", config);
  folder.write("hf_quant_config.json", R"({"quantization": {"quant_algo": "NVFP4", "group_size": 16,
    "exclude_modules": ["lm_head", "model.layers.0.self_attn*"]}})");
  const auto inspection = inspect(folder.path());
  ASSERT_TRUE(inspection.ok()) << inspection.error().message;
  ASSERT_TRUE(inspection->bytes.has_value());
  // Plain: embedding and head 2 × 320, attention 1024 + 512 + 512 + 1024, three norms of 32. MLP: 3 × 2048 weights in half a byte, a scale
  // per 16, and two FP32 scalars for each of 3 matrices.
  EXPECT_EQ(inspection->bytes->total, 2 * (640 + 3072 + 96) + 3 * (1024 + 128 + 8));
}

struct Published {
  const char* name;
  std::optional<std::int64_t> parameters;
  std::optional<std::int64_t> bytes;
  const char* wish;  // "" for none
  std::size_t sources;
  bool supported;
};

TEST(InspectConfiguration, EighteenPublishedOnes) {
  const fs::path configs = fs::path(STERLING_SOURCE_DIR) / "../shared/data/model-configs";
  if (!fs::exists(configs)) GTEST_SKIP() << "the published configurations are not beside this checkout";
  const Published all[] = {
      {"Qwen--Qwen3-0.6B", 596'049'920, 2 * 596'049'920LL, "", 0, true},
      {"Qwen--Qwen3-30B-A3B", 30'532'122'624, 2 * 30'532'122'624LL, "", 0, true},
      {"Qwen--Qwen3-30B-A3B-FP8", 30'532'122'624, std::nullopt, "", 1, true},
      {"Qwen--Qwen3-32B-FP8-Static-PerTensor", 32'762'123'264, std::nullopt, "fp8_e4m3", 2, true},
      // A_log and the norm of 48 linear-attention layers in FP32: two bytes more for 48 + 128 values each.
      {"Qwen--Qwen3.5-27B", 27'781'427'952, 2 * 27'781'427'952LL + 48 * 2 * (48 + 128), "", 0, true},
      {"Qwen--Qwen3.5-35B-A3B", 34'660'610'688 + 844'640'768 + 446'571'248, std::nullopt, "", 0, true},
      {"Qwen--Qwen3.5-397B-A17B", 396'346'350'336 + 6'595'568'128 + 456'010'480, std::nullopt, "", 0, true},
      {"deepseek-ai--DeepSeek-R1", std::nullopt, std::nullopt, "", 1, false},
      {"google--gemma-4-26B-A4B", std::nullopt, std::nullopt, "", 0, false},
      {"meta-llama--Meta-Llama-3.1-8B", 8'030'261'248, 2 * 8'030'261'248LL, "", 0, true},
      {"nvidia--DeepSeek-V3.1-NVFP4", std::nullopt, std::nullopt, "fp8_e4m3", 1, false},
      {"nvidia--Llama-3.1-70B-Instruct-FP8", 70'553'706'496, std::nullopt, "fp8_e4m3", 1, true},
      {"nvidia--MiniMax-M2.5-NVFP4", std::nullopt, std::nullopt, "fp8_e4m3", 2, false},
      {"nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4", std::nullopt, std::nullopt, "fp8_e4m3", 1, false},
      {"nvidia--Qwen3-235B-A22B-NVFP4", 235'093'634'560, std::nullopt, "fp8_e4m3", 1, true},
      {"nvidia--Qwen3.5-397B-A17B-NVFP4", 403'397'928'944, std::nullopt, "fp8_e4m3", 2, true},
      {"nvidia--Qwen3.6-27B-NVFP4", 27'781'427'952, std::nullopt, "fp8_e4m3", 2, true},
      {"openai--gpt-oss-20b", std::nullopt, std::nullopt, "", 1, false},
  };
  std::size_t seen = 0;
  for (const Published& one : all) {
    SCOPED_TRACE(one.name);
    const auto inspection = inspect(configs / one.name);
    ASSERT_TRUE(inspection.ok()) << inspection.error().message;
    EXPECT_EQ(inspection->supported, one.supported) << inspection->unsupported_reason.value_or("");
    EXPECT_EQ(inspection->parameters.total, one.parameters);
    if (one.bytes) {
      ASSERT_TRUE(inspection->bytes.has_value());
      EXPECT_EQ(inspection->bytes->total, *one.bytes);
    }
    EXPECT_EQ(inspection->bytes.has_value(), one.supported);
    EXPECT_EQ(inspection->kv_cache.wish.value_or(""), one.wish);
    EXPECT_EQ(inspection->kv_cache.sources.size(), one.sources);
    EXPECT_FALSE(inspection->kv_cache.sources_disagree);
    ++seen;
  }
  EXPECT_EQ(seen, 18U);
}

}  // namespace
}  // namespace sterling::lab
