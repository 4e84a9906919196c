#include "formats/kv_scales_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/test_support.h"

namespace sterling::formats {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(KvScalesFile, OwnShapeRoundTripsToTheBit) {
  const std::map<std::int64_t, KvScalesFile::Layer> layers = {{1, {{0.1F}, {3e-8F}}},
                                                              {3, {{0.3F, 1.0F / 3}, {7.0F, 8.0F}}}};
  const auto document = kv_scales_json(layers, {{"model", "m"}});
  EXPECT_EQ(document.at("granularity").as_string(), "head");
  EXPECT_EQ(document.at("model").as_string(), "m");
  const auto read = parse_kv_scales(boost::json::serialize(document), "kv.json");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->shape, "sterling");
  ASSERT_EQ(read->layers.size(), 2U);
  for (const auto& [layer, values] : layers) {
    EXPECT_EQ(read->layers.at(layer).k, values.k);
    EXPECT_EQ(read->layers.at(layer).v, values.v);
  }
}

TEST(KvScalesFile, VllmShapeHoldsTheLargerOfKAndVForEveryLayerAndRank) {
  const std::map<std::int64_t, KvScalesFile::Layer> layers = {{1, {{0.1F}, {0.4F}}}, {2, {{0.3F, 0.9F}, {0.2F, 0.5F}}}};
  const auto document = kv_scales_json_vllm(layers, 4, 2, "llama");
  const auto read = parse_kv_scales(boost::json::serialize(document), "kv.json");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->shape, "vllm");
  ASSERT_EQ(read->ranks.size(), 2U);
  EXPECT_EQ(read->ranks[0].at(0), 1.0F);
  EXPECT_EQ(read->ranks[0].at(1), 0.4F);
  EXPECT_EQ(read->ranks[1].at(2), 0.9F);
  const auto one = parse_kv_scales(boost::json::serialize(kv_scales_json_vllm(layers, 4, 1, "llama")), "kv.json");
  ASSERT_TRUE(one.ok());
  EXPECT_TRUE(one->ranks.empty());
  EXPECT_THAT(one->layers.at(1).v, ElementsAre(0.4F));
}

TEST(KvScalesFile, FaultsNameFileAndPlace) {
  struct Fault {
    std::string text;
    std::string part;
  };
  const std::vector<Fault> faults = {
      {"", "kv.json"},
      {"[]", "kv.json"},
      {"{}", "is no file of K/V scales"},
      {R"({"format":"other"})", "is no file of K/V scales"},
      {R"({"format":"sterling-kv-scales","version":2,"layers":[]})", "version"},
      {R"({"format":"sterling-kv-scales","version":1})", "layers"},
      {R"({"format":"sterling-kv-scales","version":1,"layers":[5]})", "layers[0]"},
      {R"({"format":"sterling-kv-scales","version":1,"layers":[{"layer":-1,"k":[1],"v":[1]}]})", "layers[0].layer"},
      {R"({"format":"sterling-kv-scales","version":1,"layers":[{"layer":0,"k":[],"v":[1]}]})", "layers[0].k"},
      {R"({"format":"sterling-kv-scales","version":1,"layers":[{"layer":0,"k":[0],"v":[1]}]})", "layers[0].k"},
      {R"({"format":"sterling-kv-scales","version":1,"layers":[{"layer":0,"k":[-1],"v":[1]}]})", "layers[0].k"},
      {R"({"format":"sterling-kv-scales","version":1,"layers":[{"layer":0,"k":["x"],"v":[1]}]})", "layers[0].k"},
      {R"({"format":"sterling-kv-scales","version":1,"layers":[{"layer":0,"k":[1e300],"v":[1]}]})", "layers[0].k"},
      {R"({"format":"sterling-kv-scales","version":1,"layers":[{"layer":0,"k":[1]}]})", "layers[0].v"},
      {R"({"format":"sterling-kv-scales","version":1,"layers":[{"layer":0,"k":[1],"v":[1]},{"layer":0,"k":[1],"v":[1]}]})",
       "twice"},
      {R"({"kv_cache":{"dtype":"float8_e5m2","scaling_factor":{"0":{"0":1}}}})", "kv_cache.dtype"},
      {R"({"kv_cache":{"dtype":"float8_e4m3fn"}})", "scaling_factor"},
      {R"({"kv_cache":{"dtype":"float8_e4m3fn","scaling_factor":{}}})", "ranks"},
      {R"({"kv_cache":{"dtype":"float8_e4m3fn","scaling_factor":{"1":{"0":1}}}})", "without gaps"},
      {R"({"kv_cache":{"dtype":"float8_e4m3fn","scaling_factor":{"x":{"0":1}}}})", "rank"},
      {R"({"kv_cache":{"dtype":"float8_e4m3fn","scaling_factor":{"0":{"-3":1}}}})", "layer"},
      {R"({"kv_cache":{"dtype":"float8_e4m3fn","scaling_factor":{"0":{"0":null}}}})", "scaling_factor.0"},
  };
  for (const Fault& fault : faults) {
    const auto read = parse_kv_scales(fault.text, "kv.json");
    ASSERT_FALSE(read.ok()) << fault.text;
    EXPECT_THAT(read.error().message, HasSubstr("kv.json")) << fault.text;
    EXPECT_THAT(read.error().message, HasSubstr(fault.part)) << fault.text;
  }
  const auto absent = read_kv_scales_file("/nonexistent/kv.json");
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(absent.error().message, HasSubstr("/nonexistent/kv.json"));
}

}  // namespace
}  // namespace sterling::formats
