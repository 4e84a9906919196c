// Cases are written after the published metadata of ModelOpt, compressed-tensors and Hugging Face's FP8 (docs/formats.md).
#include "formats/quantization_config.h"

#include <string>

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sterling::formats {
namespace {

namespace json = boost::json;
using testing::HasSubstr;

QuantizationConfig read(std::string_view config, std::string_view hf = "") {
  const json::value own = json::parse(config);
  const json::value other = hf.empty() ? json::value(json::object()) : json::parse(hf);
  auto result = read_quantization_config(own.get_object(), hf.empty() ? nullptr : &other.get_object());
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
  return result.ok() ? *result : QuantizationConfig{};
}

TEST(QuantizationConfig, NothingIsAnnouncedByNothing) {
  const QuantizationConfig config = read("{}");
  EXPECT_FALSE(config.announced);
  EXPECT_FALSE(config.announces("model.layers.0.mlp.up_proj"));
  EXPECT_EQ(config.refusal, std::nullopt);
}

TEST(QuantizationConfig, ModelOptWithExcludes) {
  const QuantizationConfig config =
      read("{}", R"({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4",
      "group_size": 16, "exclude_modules": ["lm_head", "*.mlp.shared_expert.*", "model.layers.0.linear_attn*", "mtp.layers.0*"]}})");
  EXPECT_TRUE(config.announced);
  EXPECT_EQ(config.method, "NVFP4");
  EXPECT_EQ(config.activation_bits, 4);
  EXPECT_EQ(config.refusal, std::nullopt);
  EXPECT_TRUE(config.announces("model.layers.0.mlp.experts.3.up_proj"));
  EXPECT_FALSE(config.announces("lm_head"));
  EXPECT_FALSE(config.announces("model.layers.1.mlp.shared_expert.up_proj"));
  EXPECT_FALSE(config.announces("model.layers.0.linear_attn.out_proj"));
  EXPECT_TRUE(config.announces("model.layers.1.linear_attn.out_proj"));
  EXPECT_FALSE(config.announces("mtp.layers.0.mlp.up_proj"));
}

TEST(QuantizationConfig, MixedPrecisionAnnouncesWhatItLists) {
  const QuantizationConfig config =
      read(R"({"quantization_config": {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION",
      "quantized_layers": {"model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"},
                           "model.layers.0.mlp.experts": {"quant_algo": "W4A16_NVFP4", "group_size": 16}}}})");
  EXPECT_TRUE(config.mixed);
  EXPECT_TRUE(config.announces("model.layers.0.self_attn.q_proj"));
  EXPECT_TRUE(config.announces("model.layers.0.mlp.experts.7.down_proj"));  // a parent stands for its children
  EXPECT_FALSE(config.announces("model.layers.0.self_attn.k_proj"));
  EXPECT_FALSE(config.announces("model.layers.0.mlp.experts_other"));
  EXPECT_EQ(config.activation_bits, 8);
}

TEST(QuantizationConfig, CompressedTensorsWithRegularExpressions) {
  const QuantizationConfig config =
      read(R"({"quantization_config": {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized",
      "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "float"},
                                    "input_activations": {"num_bits": 4, "type": "float", "dynamic": "local"}}},
      "ignore": ["lm_head", "re:.*self_attn.*", "re:visual"]}})");
  EXPECT_EQ(config.activation_bits, 4);
  EXPECT_FALSE(config.announces("model.layers.3.self_attn.q_proj"));
  EXPECT_TRUE(config.announces("model.layers.3.mlp.up_proj"));
  EXPECT_TRUE(config.announces("model.visual.blocks.0.mlp.fc1"));  // it matches from the start only
}

TEST(QuantizationConfig, HuggingFaceFp8) {
  const QuantizationConfig config =
      read(R"({"text_config": {"quantization_config": {"quant_method": "fp8", "fmt": "e4m3",
      "activation_scheme": "dynamic", "weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head", "model.layers.0.mlp.gate"]}}})");
  EXPECT_TRUE(config.announced);
  EXPECT_EQ(config.activation_bits, 8);
  EXPECT_FALSE(config.announces("model.layers.0.mlp.gate"));
  EXPECT_TRUE(config.announces("model.layers.0.mlp.gate_proj"));  // a name is not a prefix
}

TEST(QuantizationConfig, ModelOptOfTheCacheAloneAnnouncesNoWeights) {
  EXPECT_FALSE(read(R"({"quantization_config": {"quant_method": "modelopt", "kv_cache_scheme": "FP8"}})").announced);
}

TEST(QuantizationConfig, AcceptsWhatCanBeRun) {
  for (const char* algorithm : {"FP8", "FP8_PER_CHANNEL_PER_TOKEN", "FP8_PB_WO", "fp8_pb_wo", "NVFP4", "W4A16_NVFP4",
                                "W4A8_NVFP4_FP8", "MXFP8", "MXFP4"}) {
    const json::object section{{"quantization", json::object{{"quant_algo", algorithm}}}};
    EXPECT_EQ(read("{}", json::serialize(section)).refusal, std::nullopt) << algorithm;
  }
}

TEST(QuantizationConfig, RefusesByNameAndSaysWhatWorks) {
  for (const char* algorithm :
       {"W4A16_AWQ", "W4A8_AWQ", "NVFP4_AWQ", "NVFP4_SVD", "W8A16", "W8A8_SQ_PER_CHANNEL", "INT4"}) {
    const json::object section{{"quantization", json::object{{"quant_algo", algorithm}}}};
    const auto refusal = read("{}", json::serialize(section)).refusal;
    ASSERT_TRUE(refusal.has_value()) << algorithm;
    EXPECT_THAT(*refusal, testing::AllOf(HasSubstr(algorithm), HasSubstr("quant_algo"), HasSubstr("accepted: BF16")));
  }
  for (const char* method : {"awq", "gptq", "bitsandbytes"}) {
    const json::object section{{"quantization_config", json::object{{"quant_method", method}}}};
    EXPECT_THAT(read(json::serialize(section)).refusal.value_or(""), HasSubstr(method));
  }
  const auto integers =
      read(R"({"quantization_config": {"quant_method": "compressed-tensors", "format": "int-quantized",
      "config_groups": {"g": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "int"}}}}})");
  EXPECT_THAT(integers.refusal.value_or(""), HasSubstr("int"));
}

TEST(QuantizationConfig, MarksOfAVariantAreRefused) {
  for (const char* mark : {R"("pre_quant_scale": true)", R"("lora_rank": 32)", R"("has_zero_point": true)"}) {
    EXPECT_TRUE(
        read("{}", std::string(R"({"quantization": {"quant_algo": "NVFP4", )") + mark + "}}").refusal.has_value())
        << mark;
  }
  EXPECT_FALSE(read("{}", R"({"quantization": {"quant_algo": "NVFP4", "pre_quant_scale": false, "has_zero_point": false,
      "lora_rank": null}})")
                   .refusal.has_value());
}

TEST(QuantizationConfig, WrongTypesNameFileAndPath) {
  struct Case {
    const char* config;
    const char* where;
  };
  for (const Case& one :
       {Case{R"({"quantization_config": 3})", "quantization_config"},
        Case{R"({"quantization_config": {"quant_method": 3}})", "quantization_config.quant_method"},
        Case{R"({"quantization_config": {"quant_algo": []}})", "quantization_config.quant_algo"},
        Case{R"({"quantization_config": {"ignore": "lm_head"}})", "quantization_config.ignore"},
        Case{R"({"quantization_config": {"ignore": [1]}})", "quantization_config.ignore"},
        Case{R"({"quantization_config": {"config_groups": []}})", "quantization_config.config_groups"},
        Case{R"({"quantization_config": {"config_groups": {"g": 1}}})", "config_groups.g"},
        Case{R"({"quantization_config": {"config_groups": {"g": {"weights": 1}}}})", "config_groups.g.weights"},
        Case{R"({"quantization_config": {"quantized_layers": {"m": "FP8"}}})", "quantized_layers.m"}}) {
    const json::value config = json::parse(one.config);
    const auto result = read_quantization_config(config.get_object(), nullptr);
    ASSERT_FALSE(result.ok()) << one.config;
    EXPECT_EQ(result.error().code, ErrorCode::kCorrupt);
    EXPECT_THAT(result.error().message, testing::AllOf(HasSubstr("config.json"), HasSubstr(one.where))) << one.config;
  }
}

TEST(QuantizationConfig, GroupsAnnounceTheirTargets) {
  const QuantizationConfig config = read(R"({"quantization_config": {"quant_method": "compressed-tensors",
      "format": "mixed-precision", "ignore": ["lm_head", "model.layers.0.self_attn.o_proj"], "config_groups": {
        "group_0": {"targets": ["re:.*self_attn.*"], "weights": {"num_bits": 8, "type": "float", "strategy": "channel"},
                    "input_activations": {"num_bits": 8, "type": "float", "dynamic": true}},
        "group_1": {"targets": ["model.layers.0.mlp.up_proj"], "format": "nvfp4-pack-quantized",
                    "weights": {"num_bits": 4, "type": "float", "group_size": 16}}}}})");
  EXPECT_TRUE(config.announces("model.layers.0.self_attn.q_proj"));
  EXPECT_EQ(config.announced_format("model.layers.0.self_attn.q_proj"), "fp8_e4m3_channel");
  EXPECT_FALSE(config.announces("model.layers.0.self_attn.o_proj"));  // ignored
  EXPECT_TRUE(config.announces("model.layers.0.mlp.up_proj"));
  EXPECT_EQ(config.algorithm_of("model.layers.0.mlp.up_proj"), "W4A16_NVFP4");
  EXPECT_EQ(config.announced_format("model.layers.0.mlp.up_proj"), "nvfp4");
  EXPECT_FALSE(config.announces("model.layers.0.mlp.down_proj"));
}

TEST(QuantizationConfig, LinearMeansEveryMatrix) {
  const QuantizationConfig config = read(R"({"quantization_config": {"quant_algo": "NVFP4", "ignore": ["lm_head"],
      "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "float", "group_size": 16},
      "input_activations": {"num_bits": 4, "type": "float", "group_size": 16}}}}})");
  EXPECT_TRUE(config.announces("model.layers.3.mlp.up_proj"));
  EXPECT_FALSE(config.announces("lm_head"));
  EXPECT_EQ(config.announced_format("model.layers.3.mlp.up_proj"), "nvfp4");
}

TEST(QuantizationConfig, FormatsThatFollowFromAlgorithms) {
  const auto format = [](const std::string& fields) {
    return std::string(
        read(R"({"quantization_config": {)" + fields + "}}").announced_format("model.layers.0.mlp.up_proj"));
  };
  EXPECT_EQ(format(R"("quant_algo": "FP8")"), "fp8_e4m3_tensor");
  EXPECT_EQ(format(R"("quant_algo": "fp8_pb_wo")"), "fp8_e4m3_block");
  EXPECT_EQ(format(R"("quant_algo": "W4A16_NVFP4")"), "nvfp4");
  EXPECT_EQ(format(R"("quant_algo": "MXFP8")"), "mxfp8");
  EXPECT_EQ(format(R"("quant_method": "fp8", "weight_block_size": [128, 128])"), "fp8_e4m3_block");
  EXPECT_EQ(format(R"("quant_method": "fp8")"), "fp8_e4m3");
  EXPECT_EQ(format(R"("quant_method": "mxfp4")"), "mxfp4");
  EXPECT_EQ(format(R"("quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized")"), "nvfp4");
  EXPECT_EQ(format(R"("quant_method": "compressed-tensors", "format": "mixed-precision")"), "");
}

TEST(QuantizationConfig, MessagesNameTheFolder) {
  const json::value own = json::parse(R"({"quantization_config": {"quant_algo": 7}})");
  const auto result = read_quantization_config(own.get_object(), nullptr, "/models/a");
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(result.error().message,
              testing::StartsWith("/models/a/config.json: quantization_config.quant_algo is 7"));
  const json::value awq = json::parse(R"({"quantization_config": {"quant_method": "awq"}})");
  const auto refused = read_quantization_config(awq.get_object(), nullptr, "/models/a");
  ASSERT_TRUE(refused.ok());
  EXPECT_THAT(refused->refusal.value_or(""),
              testing::StartsWith("/models/a/config.json: quantization_config.quant_method"));
}

TEST(ModulePatterns, ABrokenRegularExpressionMatchesNothing) {
  EXPECT_FALSE(ModulePatterns::match("re:(", "model.layers.0"));
  EXPECT_FALSE(ModulePatterns::match("re:" + std::string(4096, 'a'), std::string(4096, 'a')));
}

}  // namespace
}  // namespace sterling::formats
