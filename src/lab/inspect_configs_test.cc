// Published configurations: parameters, bytes and wishes. Expected totals are those of the published checkpoints or arithmetic on their shapes.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include "formats/test_support.h"
#include "lab/inspect.h"
#include "lab/inspect_dimensions.h"
#include "lab/parameter_count.h"

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

// Families that can be counted and not run, in small: what transformers counts, and the MTP head (which it does not build) by hand.
TEST(InspectConfiguration, FamiliesThatCannotBeRunAsTransformersCountsThem) {
  std::ifstream file(fs::path(STERLING_SOURCE_DIR) / "tests/data/parameter_counts.json");
  const json::value fixtures = json::parse(std::string(std::istreambuf_iterator<char>(file), {}));
  ASSERT_EQ(fixtures.as_array().size(), 5U);
  for (const json::value& fixture : fixtures.as_array()) {
    json::object config = fixture.at("config").as_object();
    SCOPED_TRACE(std::string(config["model_type"].as_string()));
    const ParameterCounts counts = count_parameters(config, read_dimensions(config));
    EXPECT_EQ(counts.text, fixture.at("text").as_int64());
    EXPECT_EQ(counts.vision, fixture.at("vision").as_int64());
    EXPECT_EQ(counts.mtp, 0);
    const formats::TemporaryFolder folder;
    folder.write("config.json", json::serialize(config));
    const auto inspection = inspect(folder.path());
    ASSERT_TRUE(inspection.ok()) << inspection.error().message;
    ASSERT_TRUE(inspection->bytes.has_value());
    // All BF16 but the biases of routers, 4 a layer, in FP32.
    const std::int64_t biases = config["model_type"] == "deepseek_v3" || config["model_type"] == "minimax_m2" ? 2
                                : config["model_type"] == "nemotron_h"                                        ? 1
                                                                                                              : 0;
    EXPECT_EQ(inspection->bytes->total, 2 * *counts.total + biases * 4 * 2);

    if (config["model_type"] == "deepseek_v3") {
      config["num_nextn_predict_layers"] = 1;
      // One more layer with experts, embedding and head once more, eh_proj and three norms.
      const std::int64_t attention = 20 * 48 + 20 + 4 * 12 * 20 + 20 * 48 + 16 + 4 * 20 * 16 + 48 * 48;
      const std::int64_t layer = attention + 2 * 48 + 4 * 48 + 4 + (4 + 2) * 3 * 24 * 48;
      const ParameterCounts with_mtp = count_parameters(config, read_dimensions(config));
      EXPECT_EQ(with_mtp.mtp, layer + 2 * 70 * 48 + 2 * 48 * 48 + 3 * 48);
      EXPECT_EQ(with_mtp.text, counts.text);
    }
    // A hole in the sizes, or one that is absurd, is no count.
    for (const json::value& bad : {json::value(nullptr), json::value(std::int64_t{1} << 30), json::value("two")}) {
      json::object broken = config;
      (broken.contains("text_config") ? broken["text_config"].as_object() : broken)["vocab_size"] = bad;
      EXPECT_EQ(count_parameters(broken, read_dimensions(broken)).total, std::nullopt);
    }
  }
}

TEST(InspectConfiguration, MtpThatPublishedFilesLackIsSaid) {
  std::ifstream file(fs::path(STERLING_SOURCE_DIR) / "tests/data/parameter_counts.json");
  json::value fixtures = json::parse(std::string(std::istreambuf_iterator<char>(file), {}));
  json::object config = fixtures.at(1).at("config").as_object();
  config["num_mtp_modules"] = 3;
  const formats::TemporaryFolder folder;
  folder.write("config.json", json::serialize(config));
  const auto inspection = inspect(folder.path());
  ASSERT_TRUE(inspection.ok());
  EXPECT_TRUE(std::any_of(inspection->lint.begin(), inspection->lint.end(),
                          [](const LintFinding& finding) { return finding.code == "mtp_without_weights"; }));
}

struct Published {
  const char* name;
  std::int64_t parameters;
  std::int64_t mtp;
  std::int64_t vision;
  std::int64_t bytes;
  const char* wish;  // "" for none
  std::size_t sources;
  bool supported;
};

// Parameters are those of the state dict that transformers 5.24 builds from the configuration on torch's meta device (tools/models/parameter_counts.py), MTP heads
// and Qwen3.5's split those of the published files: DeepSeek-R1's header counts are 3,918,786,560 BF16, 680,571,043,840 F8_E4M3 and 41,555,600 F32 elements, of which
// 41,540,496 are block scales.
// Bytes: published totals where there are (gpt-oss-20b's index says 13,761,264,768; DeepSeek-R1's follow from the counts above), else arithmetic on the shapes:
// 2 per BF16 element; FP8 1, and per tensor two FP32 scalars or per 128 x 128 block a BF16 scale; NVFP4 9/16 and two FP32 scalars per matrix, without
// input scales one.
constexpr Published kPublished[] = {
    {"Qwen--Qwen3-0.6B", 596'049'920, 0, 0, 2 * 596'049'920LL, "", 0, true},
    {"Qwen--Qwen3-30B-A3B", 30'532'122'624, 0, 0, 2 * 30'532'122'624LL, "", 0, true},
    // 48 layers: attention 18,874,368 and 128 experts of 4,718,592 in FP8, and a scale per 16,384 of them.
    {"Qwen--Qwen3-30B-A3B-FP8", 30'532'122'624, 0, 0,
     2 * 30'532'122'624LL - 48 * (18'874'368 + 128 * 4'718'592LL) + 2 * 48 * (18'874'368 + 128 * 4'718'592LL) / 16'384,
     "", 1, true},
    // 64 layers with seven matrices: 94,371,840 in attention, 393,216,000 in the MLP.
    {"Qwen--Qwen3-32B-FP8-Static-PerTensor", 32'762'123'264, 0, 0,
     2 * 32'762'123'264LL - 64 * (94'371'840LL + 393'216'000LL) + 64 * 7 * 8, "fp8_e4m3", 2, true},
    // A_log and the norm of 48 linear-attention layers in FP32: two bytes more for 48 + 128 values each.
    {"Qwen--Qwen3.5-27B", 27'781'427'952, 424'699'392, 460'730'096, 2 * 27'781'427'952LL + 48 * 2 * (48 + 128), "", 0,
     true},
    {"Qwen--Qwen3.5-35B-A3B", 35'951'822'704, 844'640'768, 446'571'248, 2 * 35'951'822'704LL + 30 * 2 * (32 + 128), "",
     0, true},
    {"Qwen--Qwen3.5-397B-A17B", 403'397'928'944, 6'595'568'128, 456'010'480,
     2 * 403'397'928'944LL + 45 * 2 * (64 + 128), "", 0, true},
    {"deepseek-ai--DeepSeek-R1", 684'531'386'000 - 41'540'496, 13'463'426'304, 0,
     2 * 3'918'786'560LL + 680'571'043'840 + 4 * 41'555'600LL, "", 1, false},
    {"google--gemma-4-26B-A4B", 25'805'936'206, 0, 572'794'416, 2 * 25'805'936'206LL, "", 0, false},
    {"meta-llama--Meta-Llama-3.1-8B", 8'030'261'248, 0, 0, 2 * 8'030'261'248LL, "", 0, true},
    // The head, routers, query and compressed K/V projections and layer 61 stay BF16, biases of routers FP32; NVFP4 are o_proj (117,440,512) of 61 layers, the
    // MLP of 3 (396,361,728) and 257 experts (44,040,192) of 58.
    {"nvidia--DeepSeek-V3.1-NVFP4", 684'489'845'504, 13'463'426'304, 0,
     2 * 684'489'845'504LL + 2 * 59 * 256 -
         (61 * 117'440'512LL + 3 * 396'361'728LL + 58 * 257 * 44'040'192LL) / 16 * 23 + 8 * (61 + 3 * 3 + 58 * 257 * 3),
     "fp8_e4m3", 1, false},
    // 80 layers with seven matrices: 150,994,944 in attention, 704,643,072 in the MLP.
    {"nvidia--Llama-3.1-70B-Instruct-FP8", 70'553'706'496, 0, 0,
     2 * 70'553'706'496LL - 80 * (150'994'944LL + 704'643'072LL) + 80 * 7 * 8, "fp8_e4m3", 1, true},
    // 62 layers of 256 experts of 14,155,776 in NVFP4, biases of routers FP32.
    {"nvidia--MiniMax-M2.5-NVFP4", 228'689'764'864, 0, 0,
     2 * 228'689'764'864LL + 2 * 62 * 256 - 62 * 256 * 14'155'776LL / 16 * 23 + 8 * 62 * 256 * 3, "fp8_e4m3", 2, false},
    // NVFP4: in_proj and out_proj (27,697,152 and 11,010,048) of 17 of 23 Mamba layers; 128 experts of 9,977,856 and a shared one of twice that in 23 layers.
    {"nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4", 31'577'940'288, 0, 0,
     2 * 31'577'940'288LL + 2 * 23 * 128 - (17 * 38'707'200LL + 23 * 130 * 9'977'856LL) / 16 * 23 +
         8 * (17 * 2 + 23 * 129 * 2),
     "fp8_e4m3", 1, false},
    // 94 layers: attention 71,303,168 and 128 experts of 18,874,368 in NVFP4.
    {"nvidia--Qwen3-235B-A22B-NVFP4", 235'093'634'560, 0, 0,
     2 * 235'093'634'560LL - 94 * (71'303'168LL + 128 * 18'874'368LL) / 16 * 23 + 8 * 94 * (4 + 128 * 3), "fp8_e4m3", 1,
     true},
    // 60 layers of 512 experts of 12,582,912 in NVFP4, all else BF16.
    {"nvidia--Qwen3.5-397B-A17B-NVFP4", 403'397'928'944, 6'595'568'128, 456'010'480,
     2 * 403'397'928'944LL + 45 * 2 * (64 + 128) - 60 * 512 * 12'582'912LL / 16 * 23 + 8 * 60 * 512 * 3, "fp8_e4m3", 2,
     true},
    // FP8: 104,857,600 of attention in 16 layers, 115,343,360 in 48 linear ones; NVFP4 without input scales: the MLP (267,386,880) and the head (1,271,398,400).
    {"nvidia--Qwen3.6-27B-NVFP4", 27'781'427'952, 424'699'392, 460'730'096,
     2 * 27'781'427'952LL - (16 * 104'857'600LL + 48 * 115'343'360LL) + 8 * (16 * 4 + 48 * 3) -
         (64 * 267'386'880LL + 1'271'398'400LL) / 16 * 23 + 4 * (64 * 3 + 1),
     "fp8_e4m3", 2, true},
    {"openai--gpt-oss-20b", 20'914'757'184, 0, 0, 13'761'264'768, "", 1, false},
};

TEST(InspectConfiguration, EighteenPublishedOnes) {
  const fs::path configs = fs::path(STERLING_SOURCE_DIR) / "../shared/data/model-configs";
  if (!fs::exists(configs)) GTEST_SKIP() << "the published configurations are not beside this checkout";
  std::size_t seen = 0;
  for (const Published& one : kPublished) {
    SCOPED_TRACE(one.name);
    const auto inspection = inspect(configs / one.name);
    ASSERT_TRUE(inspection.ok()) << inspection.error().message;
    EXPECT_EQ(inspection->supported, one.supported) << inspection->unsupported_reason.value_or("");
    EXPECT_EQ(inspection->parameters.total, one.parameters);
    EXPECT_EQ(inspection->parameters.mtp, one.mtp);
    EXPECT_EQ(inspection->parameters.vision, one.vision);
    EXPECT_EQ(inspection->parameters.text, one.parameters - one.mtp - one.vision);
    ASSERT_TRUE(inspection->bytes.has_value());
    EXPECT_EQ(inspection->bytes->total, one.bytes);
    EXPECT_EQ(inspection->bytes->total, inspection->bytes->text + inspection->bytes->mtp + inspection->bytes->vision);
    EXPECT_EQ(inspection->kv_cache.wish.value_or(""), one.wish);
    EXPECT_EQ(inspection->kv_cache.sources.size(), one.sources);
    EXPECT_FALSE(inspection->kv_cache.sources_disagree);
    ++seen;
  }
  EXPECT_EQ(seen, 18U);
}

}  // namespace
}  // namespace sterling::lab
