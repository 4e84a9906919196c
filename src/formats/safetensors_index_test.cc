#include "formats/safetensors_index.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sterling::formats {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string message_of(std::string_view text) {
  const auto parsed = parse_safetensors_index(text, "index.json");
  return parsed.ok() ? "accepted" : parsed.error().message;
}

TEST(SafetensorsIndex, ReadsEntriesSortedAndShardsInOrder) {
  const auto parsed = parse_safetensors_index(
      R"({"metadata": {"total_size": 5, "x": [1, {"weight_map": null}], "y": true},
          "weight_map": {"b": "2.safetensors", "a\u0041": "1.safetensors", "c": "2.safetensors"}, "more": -1.5})",
      "index.json");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_THAT(parsed->shards, ElementsAre("2.safetensors", "1.safetensors"));
  ASSERT_EQ(parsed->entries.size(), 3u);
  EXPECT_EQ(parsed->entries[0].tensor, "aA");
  EXPECT_EQ(parsed->entries[0].shard, 1u);
  EXPECT_EQ(parsed->entries[1].tensor, "b");
  EXPECT_EQ(parsed->entries[2].tensor, "c");
  EXPECT_EQ(parsed->entries[2].shard, 0u);
}

TEST(SafetensorsIndex, KeepsNamesWithEscapes) {
  // Found by fuzzing: an escaped key is handed over in a buffer of the parser's own, gone when the message is written.
  const std::string longer(300, 'x');
  const std::string text = R"({"weight_map": {"\\a": "1.safetensors", "\u00e9": "1.safetensors", "\n)" + longer +
                           R"(\n": "1.safetensors"}})";
  const auto parsed = parse_safetensors_index(text, "index.json");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  ASSERT_EQ(parsed->entries.size(), 3u);
  EXPECT_EQ(parsed->entries[0].tensor, "\n" + longer + "\n");
  EXPECT_EQ(parsed->entries[1].tensor, "\\a");
  EXPECT_EQ(parsed->entries[2].tensor, "\u00e9");
  EXPECT_THAT(message_of(R"({"weight_map": {"\\a": "x"}})"), HasSubstr("tensor \"\\\\a\" lies in \"x\""));
}

TEST(SafetensorsIndex, RefusesShardsThatLeadElsewhere) {
  for (const char* name :
       {"../intact/model.safetensors", "/etc/x.safetensors", "sub/x.safetensors", "..", ".", "", ".safetensors",
        "x\\\\y.safetensors", "model.bin", "x.safetensors\\u0000", "a\\u0000.safetensors"}) {
    EXPECT_THAT(message_of(R"({"weight_map": {"w": ")" + std::string(name) + "\"}}"),
                AllOf(HasSubstr("index.json: weight_map: tensor \"w\" lies in \""),
                      HasSubstr("accepted: the name of a .safetensors file beside the index")))
        << name;
  }
}

TEST(SafetensorsIndex, RefusesWrongTypes) {
  EXPECT_THAT(message_of("[]"), HasSubstr("index.json: expected a JSON object, found an array"));
  EXPECT_THAT(message_of("{}"), HasSubstr("weight_map is missing"));
  EXPECT_THAT(message_of(R"({"metadata": {"weight_map": {"w": "x.safetensors"}}})"),
              HasSubstr("weight_map is missing"));
  EXPECT_THAT(message_of(R"({"weight_map": {}})"), HasSubstr("weight_map is empty"));
  EXPECT_THAT(message_of(R"({"weight_map": []})"), HasSubstr("weight_map: expected an object, found an array"));
  EXPECT_THAT(message_of(R"({"weight_map": null})"), HasSubstr("weight_map: expected an object, found null"));
  EXPECT_THAT(message_of(R"({"weight_map": "x"})"),
              HasSubstr("weight_map: expected an object, found the string \"x\""));
  EXPECT_THAT(message_of(R"({"weight_map": {"w": 3}})"),
              HasSubstr("tensor \"w\": expected the name of a file, found the number 3"));
  EXPECT_THAT(message_of(R"({"weight_map": {"w": {}}})"),
              HasSubstr("tensor \"w\": expected the name of a file, found an object"));
  EXPECT_THAT(message_of(R"({"weight_map": {"w": ["x.safetensors"]}})"), HasSubstr("found an array"));
  EXPECT_THAT(message_of(R"({"weight_map": {"w": "x.safetensors", "w": "x.safetensors"}})"),
              HasSubstr("tensor \"w\" appears twice"));
  EXPECT_THAT(message_of(R"({"weight_map": {"w": "x.safetensors"}, "weight_map": {"w": "x.safetensors"}})"),
              HasSubstr("weight_map: appears twice"));
  EXPECT_THAT(message_of(R"({"weight_map": {"w": "x.safetensors")"), HasSubstr("ends in the middle"));
  EXPECT_THAT(message_of(""), HasSubstr("the JSON is empty"));
  EXPECT_THAT(message_of("{\"weight_map\": {\"\xff\": \"x.safetensors\"}}"), HasSubstr("not valid UTF-8"));
  EXPECT_THAT(message_of("{\"x\":" + std::string(100000, '[')), HasSubstr("nested deeper than 16 levels"));
  std::string many = R"({"weight_map": {)";
  for (int i = 0; i < 10001; ++i) {
    many += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":\"" + std::to_string(i) + ".safetensors\"";
  }
  EXPECT_THAT(message_of(many + "}}"), HasSubstr("more than 10000 shards"));
}

std::vector<TensorView> shard_of(const std::vector<std::string>& names) {
  std::vector<TensorView> tensors;
  for (const std::string& name : names) {
    tensors.emplace_back().name = name;
    tensors.back().file = "a shard";
  }
  return tensors;
}

std::string join(std::vector<std::vector<TensorView>> shards) {
  const auto index = parse_safetensors_index(
      R"({"weight_map": {"a": "1.safetensors", "b": "2.safetensors", "c": "1.safetensors", "d": "2.safetensors"}})",
      "index.json");
  EXPECT_TRUE(index.ok());
  const auto joined = join_shards(*index, "index.json", shards);
  if (!joined.ok()) return joined.error().message;
  std::string names;
  for (const TensorView& tensor : *joined) names += tensor.name;
  return names;
}

TEST(JoinShards, WantsExactlyTheSameTensors) {
  EXPECT_EQ(join({shard_of({"a", "c"}), shard_of({"b", "d"})}), "abcd");
  EXPECT_EQ(join({shard_of({"a"}), shard_of({"b", "d"})}),
            "index.json: tensor \"c\" is not in its shard \"1.safetensors\"");
  EXPECT_EQ(join({shard_of({"c"}), shard_of({"b", "d"})}),
            "index.json: tensor \"a\" is not in its shard \"1.safetensors\"");
  EXPECT_EQ(join({shard_of({}), shard_of({"b", "d"})}),
            "index.json: tensor \"a\" is not in its shard \"1.safetensors\"");
  EXPECT_EQ(join({shard_of({"a", "aa", "c"}), shard_of({"b", "d"})}),
            "index.json: does not list tensor \"aa\" of a shard");
  EXPECT_EQ(join({shard_of({"a", "c"}), shard_of({"b", "d", "e"})}),
            "index.json: does not list tensor \"e\" of a shard");
  // In the wrong shard: both sides are at fault, the first in order is named.
  EXPECT_EQ(join({shard_of({"a", "b", "c"}), shard_of({"d"})}),
            "index.json: tensor \"b\" is not in its shard \"2.safetensors\"");
}

}  // namespace
}  // namespace sterling::formats
