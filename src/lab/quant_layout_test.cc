#include "lab/quant_layout.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sterling::lab {
namespace {

using testing::ElementsAre;

TEST(Pattern, ShellRules) {
  EXPECT_TRUE(matches_pattern("lm_head", "lm_head"));
  EXPECT_FALSE(matches_pattern("lm_head", "lm_heads"));
  EXPECT_TRUE(matches_pattern("*.mlp.*", "model.layers.0.mlp.up_proj"));
  EXPECT_TRUE(matches_pattern("model*q?proj", "model.layers.0.self_attn.q_proj"));
  EXPECT_FALSE(matches_pattern("*a*b", "aab.c"));
  EXPECT_TRUE(matches_pattern("*ab*ab", "abxabab"));
  EXPECT_TRUE(matches_pattern("**", ""));
  EXPECT_FALSE(matches_pattern("?", ""));
  EXPECT_FALSE(matches_pattern("", "x"));
  // A star in the text is a character like others.
  EXPECT_FALSE(matches_pattern("a", "*"));
  EXPECT_TRUE(matches_pattern("?b*", "*bc"));
}

std::vector<MatrixModule> hybrid() {
  std::vector<MatrixModule> modules;
  for (const char* name :
       {"model.layers.0.linear_attn.in_proj_qkv", "model.layers.0.linear_attn.in_proj_z",
        "model.layers.0.linear_attn.in_proj_a", "model.layers.0.mlp.gate", "model.layers.0.mlp.experts.0.up_proj",
        "model.layers.0.mlp.shared_expert.up_proj", "model.layers.0.mlp.shared_expert_gate",
        "model.layers.1.self_attn.q_proj", "model.layers.1.mlp.experts.0.up_proj", "mtp.fc",
        "mtp.layers.0.mlp.experts.0.up_proj", "model.visual.blocks.0.attn.qkv", "lm_head"}) {
    modules.push_back({name, 32, 32});
  }
  return modules;
}

QuantMetadata split(WeightTarget target, const std::vector<MatrixModule>& modules,
                    std::vector<std::string> excludes = {}) {
  const QuantRules rules(target, modules, std::move(excludes));
  QuantMetadata metadata;
  metadata.target = target;
  for (const MatrixModule& module : modules) {
    (rules.quantises(module) ? metadata.quantised : metadata.plain).push_back(module.name);
  }
  return metadata;
}

TEST(Rules, Nvfp4OfAHybridTakesTheRoutedExperts) {
  const auto metadata = split(WeightTarget::kNvfp4, hybrid());
  EXPECT_THAT(metadata.quantised,
              ElementsAre("model.layers.0.mlp.experts.0.up_proj", "model.layers.1.mlp.experts.0.up_proj"));
  EXPECT_THAT(excluded_modules(metadata),
              ElementsAre("lm_head", "model.layers.0.linear_attn*", "model.layers.0.mlp.gate",
                          "model.layers.0.mlp.shared_expert*", "model.layers.0.mlp.shared_expert_gate",
                          "model.layers.1.self_attn*", "model.visual*", "mtp*"));
}

TEST(Rules, Fp8TakesEveryLargeMatrix) {
  const auto metadata = split(WeightTarget::kFp8, hybrid());
  EXPECT_EQ(metadata.quantised.size(), 6u);
  EXPECT_THAT(excluded_modules(metadata),
              ElementsAre("lm_head", "model.layers.0.linear_attn.in_proj_a", "model.layers.0.mlp.gate",
                          "model.layers.0.mlp.shared_expert_gate", "model.visual*", "mtp*"));
}

TEST(Rules, BlockFilesNameEveryModule) {
  const auto metadata = split(WeightTarget::kFp8Block, hybrid());
  EXPECT_THAT(excluded_modules(metadata),
              ElementsAre("lm_head", "model.layers.0.linear_attn.in_proj_a", "model.layers.0.mlp.gate",
                          "model.layers.0.mlp.shared_expert_gate", "model.visual.blocks.0.attn.qkv", "mtp.fc",
                          "mtp.layers.0.mlp.experts.0.up_proj"));
  const auto config = quantization_config(metadata);
  EXPECT_EQ(config.at("quant_method"), "fp8");
  EXPECT_TRUE(hf_quant_config(metadata).empty());
}

TEST(Rules, WidthsThatBlocksDoNotFit) {
  const std::vector<MatrixModule> modules = {{"a.up_proj", 8, 24}, {"a.down_proj", 24, 32}};
  EXPECT_THAT(split(WeightTarget::kNvfp4, modules).quantised, ElementsAre("a.down_proj"));
  EXPECT_EQ(split(WeightTarget::kFp8, modules).quantised.size(), 2u);
  EXPECT_TRUE(split(WeightTarget::kBf16, modules).quantised.empty());
}

TEST(Rules, Exclusions) {
  const auto metadata = split(WeightTarget::kFp8, hybrid(), {"*.self_attn.*", "*.experts.*"});
  EXPECT_EQ(metadata.quantised.size(), 3u);
  const auto modules = hybrid();
  EXPECT_EQ(QuantRules(WeightTarget::kFp8, modules, {"*.experts.*", "nothing*"}).idle_pattern(), "nothing*");
  EXPECT_EQ(QuantRules(WeightTarget::kFp8, modules, {"*.experts.*"}).idle_pattern(), "");
}

TEST(Layout, SharedScales) {
  EXPECT_EQ(scale_group("m.0.self_attn.q_proj"), scale_group("m.0.self_attn.v_proj"));
  EXPECT_EQ(scale_group("m.0.mlp.experts.3.gate_proj"), scale_group("m.0.mlp.experts.3.up_proj"));
  EXPECT_NE(scale_group("m.0.mlp.experts.3.gate_proj"), scale_group("m.0.mlp.experts.4.up_proj"));
  EXPECT_NE(scale_group("m.0.mlp.gate_proj"), scale_group("m.0.mlp.down_proj"));
  EXPECT_NE(scale_group("m.0.self_attn.q_proj"), scale_group("m.1.self_attn.q_proj"));
}

TEST(Layout, PartsOfAMatrix) {
  const auto nvfp4 = quantised_parts({"m", 6, 32}, WeightTarget::kNvfp4, true);
  ASSERT_EQ(nvfp4.size(), 4u);
  EXPECT_THAT(nvfp4[0].shape, ElementsAre(6, 16));
  EXPECT_THAT(nvfp4[1].shape, ElementsAre(6, 2));
  EXPECT_EQ(nvfp4[3].name, "m.input_scale");
  const auto block = quantised_parts({"m", 129, 256}, WeightTarget::kFp8Block, true);
  ASSERT_EQ(block.size(), 2u);
  EXPECT_EQ(block[1].name, "m.weight_scale_inv");
  EXPECT_THAT(block[1].shape, ElementsAre(2, 2));
}

TEST(Metadata, WeightOnlySaysSo) {
  QuantMetadata metadata;
  metadata.plain = {"lm_head"};
  metadata.quantised = {"model.layers.0.mlp.up_proj"};
  const auto weight_only = quantization_config(metadata);
  EXPECT_EQ(weight_only.at("quant_algo"), "W4A16_NVFP4");
  EXPECT_FALSE(weight_only.at("config_groups").as_object().at("group_0").as_object().contains("input_activations"));
  metadata.activations = true;
  EXPECT_EQ(hf_quant_config(metadata).at("quantization").as_object().at("quant_algo"), "NVFP4");
}

TEST(PrettyJson, ReadsBackAndLooksRight) {
  const auto value = boost::json::parse(R"({"b":[],"a":{"x":[1,"q\"",null]},"c":{}})");
  const std::string text = pretty_json(value);
  EXPECT_EQ(text,
            "{\n  \"b\": [],\n  \"a\": {\n    \"x\": [\n      1,\n      \"q\\\"\",\n      null\n    ]\n  },\n  \"c\": "
            "{}\n}\n");
  EXPECT_EQ(boost::json::parse(text), value);
}

}  // namespace
}  // namespace sterling::lab
