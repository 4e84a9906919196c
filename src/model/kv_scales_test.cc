// K and V scales under every name that checkpoints use, and from files of both shapes.
#include "model/kv_scales.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/test_support.h"

namespace sterling::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two layers with two KV heads each.
ModelSpec spec() {
  ModelSpec s;
  s.layers = {LayerKind::kFullAttention, LayerKind::kFullAttention};
  s.attention.kv_heads = 2;
  return s;
}

struct Scale {
  std::string name;
  std::vector<float> values;
};

// A checkpoint that holds nothing but scales; the finder asks for no more.
Expected<formats::Checkpoint> with_scales(const formats::TemporaryFolder& folder, const std::vector<Scale>& scales) {
  std::string header;
  std::string data;
  for (const Scale& scale : scales) {
    const std::size_t begin = data.size();
    for (const float value : scale.values) data += formats::little_endian(value);
    header += fmt::format(R"({}"{}":{{"dtype":"F32","shape":{},"data_offsets":[{},{}]}})", header.empty() ? "" : ",",
                          scale.name, scale.values.size() == 1 ? "[]" : fmt::format("[{}]", scale.values.size()), begin,
                          data.size());
  }
  folder.write("config.json", R"({"architectures":["LlamaForCausalLM"],"model_type":"llama"})");
  folder.write("model.safetensors", formats::safetensors_bytes("{" + header + "}", data));
  return formats::Checkpoint::open(folder.path());
}

TEST(FindKvScales, KnowsEveryName) {
  const std::vector<std::pair<std::string, std::string>> names = {
      {"k_proj.k_scale", "v_proj.v_scale"},
      {"k_scale", "v_scale"},
      {"attn.k_scale", "attn.v_scale"},
      {"k_proj.output_scale", "v_proj.output_scale"},
  };
  for (const auto& [k, v] : names) {
    SCOPED_TRACE(k);
    const formats::TemporaryFolder folder;
    const std::string prefix = "model.layers.";
    const auto checkpoint =
        with_scales(folder, {{prefix + "0.self_attn." + k, {0.5F}}, {prefix + "0.self_attn." + v, {0.25F, 0.75F}}});
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    const auto found = find_kv_scales(*checkpoint, spec());
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(found->source, "checkpoint");
    EXPECT_EQ(found->expected, 4);
    EXPECT_EQ(found->found(), 2);
    EXPECT_THAT(found->scales.k[0], ElementsAre(0.5F));
    EXPECT_THAT(found->scales.v[0], ElementsAre(0.25F, 0.75F));
    EXPECT_THAT(found->missing, ElementsAre("layer 1 K", "layer 1 V"));
    EXPECT_THAT(found->looked_for, HasSubstr(k));
  }
  const formats::TemporaryFolder folder;
  const auto shared = with_scales(folder, {{"model.layers.1.self_attn.kv_scale", {0.5F}}});
  ASSERT_TRUE(shared.ok());
  const auto found = find_kv_scales(*shared, spec());
  ASSERT_TRUE(found.ok());
  EXPECT_THAT(found->scales.k[1], ElementsAre(0.5F));
  EXPECT_THAT(found->scales.v[1], ElementsAre(0.5F));
}

TEST(FindKvScales, BrokenOnesAreNamed) {
  struct Fault {
    std::vector<float> values;
    std::string part;
  };
  const std::vector<Fault> faults = {
      {{0.0F}, "holds the KV scale 0"},
      {{-0.5F}, "holds the KV scale -0.5"},
      {{std::numeric_limits<float>::quiet_NaN()}, "nan"},
      {{std::numeric_limits<float>::infinity()}, "inf"},
      {{1.0F, 2.0F, 3.0F}, "holds 3 K/V scales"},
  };
  for (const Fault& fault : faults) {
    const formats::TemporaryFolder folder;
    const auto checkpoint = with_scales(folder, {{"model.layers.0.self_attn.k_proj.k_scale", fault.values}});
    ASSERT_TRUE(checkpoint.ok());
    const auto found = find_kv_scales(*checkpoint, spec());
    ASSERT_FALSE(found.ok()) << fault.part;
    EXPECT_EQ(found.error().code, ErrorCode::kCorrupt);
    EXPECT_THAT(found.error().message, HasSubstr("model.layers.0.self_attn.k_proj.k_scale"));
    EXPECT_THAT(found.error().message, HasSubstr(fault.part));
  }
}

Expected<plan::ScalesFound> from_text(std::string_view text, const ModelSpec& model = spec()) {
  const auto file = formats::parse_kv_scales(text, "folder/kv.json");
  EXPECT_TRUE(file.ok()) << file.error().message;
  return kv_scales_from_file(*file, model);
}

TEST(KvScalesFromFile, OwnShapePerTensorAndPerHead) {
  const auto found = from_text(
      R"({"format":"sterling-kv-scales","version":1,"layers":[{"layer":0,"k":[0.5],"v":[0.25,2]},{"layer":1,"k":[1],"v":[3]}]})");
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->source, "file kv.json");
  EXPECT_EQ(found->found(), 4);
  EXPECT_THAT(found->scales.v[0], ElementsAre(0.25F, 2.0F));
  EXPECT_THAT(found->scales.v[1], ElementsAre(3.0F));
}

TEST(KvScalesFromFile, RanksOfVllmsShapeAreHeads) {
  const auto apart = from_text(
      R"({"kv_cache":{"dtype":"float8_e4m3fn","scaling_factor":{"0":{"0":0.5,"1":1},"1":{"0":0.25,"1":2}}}})");
  ASSERT_TRUE(apart.ok()) << apart.error().message;
  EXPECT_THAT(apart->scales.k[0], ElementsAre(0.5F, 0.25F));
  EXPECT_THAT(apart->scales.v[1], ElementsAre(1.0F, 2.0F));
  // More ranks than heads: replicas must agree.
  const auto replicated = from_text(
      R"({"kv_cache":{"dtype":"float8_e4m3fn","scaling_factor":{"0":{"0":1,"1":1},"1":{"0":1,"1":1},"2":{"0":2,"1":1},"3":{"0":2,"1":1}}}})");
  ASSERT_TRUE(replicated.ok()) << replicated.error().message;
  EXPECT_THAT(replicated->scales.k[0], ElementsAre(1.0F, 2.0F));
  const auto torn = from_text(
      R"({"kv_cache":{"dtype":"float8_e4m3fn","scaling_factor":{"0":{"0":1,"1":1},"1":{"0":3,"1":1},"2":{"0":2,"1":1},"3":{"0":2,"1":1}}}})");
  ASSERT_FALSE(torn.ok());
  EXPECT_THAT(torn.error().message, HasSubstr("different scales"));
  const auto odd =
      from_text(R"({"kv_cache":{"dtype":"float8_e4m3fn","scaling_factor":{"0":{"0":1},"1":{"0":1},"2":{"0":1}}}})");
  ASSERT_FALSE(odd.ok());
  EXPECT_THAT(odd.error().message, HasSubstr("3 tensor-parallel ranks"));
}

TEST(KvScalesFromFile, AFileOfAnotherModelIsRefused) {
  const auto beyond =
      from_text(R"({"format":"sterling-kv-scales","version":1,"layers":[{"layer":2,"k":[1],"v":[1]}]})");
  ASSERT_FALSE(beyond.ok());
  EXPECT_THAT(beyond.error().message, HasSubstr("layer 2"));
  ModelSpec hybrid = spec();
  hybrid.layers[0] = LayerKind::kLinearAttention;
  const auto linear =
      from_text(R"({"format":"sterling-kv-scales","version":1,"layers":[{"layer":0,"k":[1],"v":[1]}]})", hybrid);
  ASSERT_FALSE(linear.ok());
  EXPECT_THAT(linear.error().message, HasSubstr("layer 0, which has no KV cache"));
  const auto heads =
      from_text(R"({"format":"sterling-kv-scales","version":1,"layers":[{"layer":0,"k":[1,2,3],"v":[1]}]})");
  ASSERT_FALSE(heads.ok());
  EXPECT_THAT(heads.error().message, HasSubstr("has 3 scales"));
  const auto half = from_text(R"({"format":"sterling-kv-scales","version":1,"layers":[{"layer":1,"k":[1],"v":[1]}]})");
  ASSERT_TRUE(half.ok());
  EXPECT_THAT(half->missing, ElementsAre("layer 0 K", "layer 0 V"));
}

}  // namespace
}  // namespace sterling::model
