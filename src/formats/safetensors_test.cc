#include "formats/safetensors.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/test_support.h"

namespace sterling::formats {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string message_of_file(const std::string& bytes) {
  const auto parsed = parse_safetensors(as_bytes(bytes), "m.safetensors");
  return parsed.ok() ? "accepted" : parsed.error().message;
}

std::string message_of(std::string_view header, std::size_t data_bytes) {
  return message_of_file(safetensors_bytes(header, std::string(data_bytes, '\0')));
}

constexpr std::string_view kTwo = R"({"b": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]},
  "__metadata__": {"format": "pt", "x\u0041": ""}, "a": {"dtype":"U8","shape":[4],"data_offsets":[12,16]}})";

TEST(Safetensors, ReadsTensorsSortedByName) {
  const std::string bytes = safetensors_bytes(kTwo, "0123456789abWXYZ");
  const auto parsed = parse_safetensors(as_bytes(bytes), "m.safetensors");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  ASSERT_EQ(parsed->tensors.size(), 2u);
  const TensorView& a = parsed->tensors[0];
  EXPECT_EQ(a.name, "a");
  EXPECT_EQ(a.dtype, DType::kU8);
  EXPECT_THAT(a.shape, ElementsAre(4));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(a.data.data()), a.data.size()), "WXYZ");
  EXPECT_EQ(a.file, "m.safetensors");
  EXPECT_EQ(a.interleaved_rope_heads, 0);
  const TensorView& b = parsed->tensors[1];
  EXPECT_EQ(b.dtype, DType::kBF16);
  EXPECT_THAT(b.shape, ElementsAre(2, 3));
  EXPECT_EQ(b.elements(), 6);
  EXPECT_EQ(b.data.size(), 12u);
  EXPECT_THAT(parsed->metadata, ElementsAre(std::pair<std::string, std::string>("format", "pt"),
                                            std::pair<std::string, std::string>("xA", "")));
}

TEST(Safetensors, AcceptsEmptyTensorsScalarsPaddingAndNoTensorsAtAll) {
  EXPECT_EQ(message_of("{}", 0), "accepted");
  EXPECT_EQ(message_of("{}      ", 0), "accepted");
  EXPECT_EQ(message_of(R"({"e":{"dtype":"F32","shape":[0,5],"data_offsets":[0,0]},
    "s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"f":{"dtype":"F32","shape":[3,0],"data_offsets":[4,4]}})",
                       4),
            "accepted");
  EXPECT_EQ(message_of(R"({"f":{"dtype":"F4","shape":[3,2],"data_offsets":[0,3]}})", 3), "accepted");
}

TEST(Safetensors, RefusesAHeaderLengthThatLies) {
  EXPECT_THAT(message_of_file(""), AllOf(StartsWith("m.safetensors: has 0 bytes"), HasSubstr("header length")));
  EXPECT_THAT(message_of_file("1234567"), HasSubstr("has 7 bytes"));
  EXPECT_THAT(message_of_file(little_endian(std::uint64_t{1} << 60) + "{}"),
              HasSubstr("the header length is 1152921504606846976, the limit is 100000000"));
  EXPECT_THAT(message_of_file(little_endian((std::uint64_t{1} << 63) - 1) + "{}"), HasSubstr("the limit is 100000000"));
  EXPECT_THAT(message_of_file(little_endian(~std::uint64_t{0}) + "{}"), HasSubstr("the limit is 100000000"));
  EXPECT_THAT(message_of_file(little_endian(std::uint64_t{100}) + "{}"),
              HasSubstr("the header length is 100, but only 2 bytes follow it (is the file truncated?)"));
  EXPECT_THAT(message_of_file(little_endian(std::uint64_t{0}) + "{}"), HasSubstr("the JSON is empty"));
  EXPECT_THAT(message_of_file(little_endian(std::uint64_t{1}) + "{}"), HasSubstr("the JSON ends in the middle"));
}

TEST(Safetensors, RefusesAHeaderThatIsNotAnObjectOfTensors) {
  EXPECT_THAT(message_of("hello", 0), HasSubstr("not valid JSON"));
  EXPECT_THAT(message_of("[]", 0), HasSubstr("header: expected a JSON object of tensors, found an array"));
  EXPECT_THAT(message_of("3", 0), HasSubstr("found the number 3"));
  EXPECT_THAT(message_of("null", 0), HasSubstr("found null"));
  EXPECT_THAT(message_of(std::string(20000, '['), 0), HasSubstr("found an array"));
  EXPECT_THAT(message_of("{\"a\":" + std::string(20000, '['), 0),
              HasSubstr("tensor \"a\": expected an object, found an array"));
  std::string objects;
  for (int i = 0; i < 20000; ++i) objects += "{\"a\":";
  EXPECT_NE(message_of(objects, 0), "accepted");
  EXPECT_THAT(message_of("{\"\xff\xfe\": {}}", 0), HasSubstr("not valid UTF-8"));
  EXPECT_THAT(message_of("{} x", 0), HasSubstr("something follows the end of the JSON"));
  EXPECT_THAT(message_of(R"({"__metadata__": {"a": 1}})", 0),
              HasSubstr("__metadata__: \"a\": expected a string, found the number 1"));
  EXPECT_THAT(message_of(R"({"__metadata__": {"a": {}}})", 0), HasSubstr("expected a string, found an object"));
  EXPECT_THAT(message_of(R"({"__metadata__": "x"})", 0), HasSubstr("expected an object, found the string \"x\""));
  EXPECT_THAT(message_of(R"({"__metadata__": {}, "__metadata__": {}})", 0), HasSubstr("__metadata__: appears twice"));
}

TEST(Safetensors, RefusesAnEntryThatIsIncompleteOrWronglyTyped) {
  EXPECT_EQ(message_of(R"({"w":{"shape":[],"data_offsets":[0,4]}})", 4),
            "m.safetensors: tensor \"w\": dtype is missing");
  EXPECT_THAT(message_of(R"({"w":{"dtype":"F32","data_offsets":[0,4]}})", 4), HasSubstr("shape is missing"));
  EXPECT_THAT(message_of(R"({"w":{"dtype":"F32","shape":[]}})", 4), HasSubstr("data_offsets is missing"));
  EXPECT_THAT(message_of(R"({"w":{"dtype":"F7_E3M3","shape":[],"data_offsets":[0,4]}})", 4),
              AllOf(HasSubstr("tensor \"w\": unknown dtype \"F7_E3M3\", accepted: BF16, F32"), HasSubstr("BOOL")));
  EXPECT_THAT(message_of(R"({"w":{"dtype":4,"shape":[],"data_offsets":[0,4]}})", 4),
              HasSubstr("dtype: expected a string, found the number 4"));
  EXPECT_THAT(message_of(R"({"w":{"dtype":"F32","shape":"x","data_offsets":[0,4]}})", 4),
              HasSubstr("shape: expected an array of integers"));
  EXPECT_THAT(message_of(R"({"w":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})", 4),
              HasSubstr("shape: expected integers, found an array"));
  EXPECT_THAT(message_of(R"({"w":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4),
              HasSubstr("shape has the number 1, expected integers"));
  EXPECT_THAT(message_of(R"({"w":{"dtype":"F32","shape":[true],"data_offsets":[0,4]}})", 4), HasSubstr("found true"));
  EXPECT_THAT(message_of(R"({"w":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4),
              HasSubstr("shape has the negative extent -1"));
  EXPECT_THAT(message_of(R"({"w":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})", 4),
              HasSubstr("absurd number"));
  EXPECT_THAT(
      message_of(R"({"w":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}})", 4),
      HasSubstr("more than 16 extents"));
  EXPECT_THAT(message_of(R"({"w":{"dtype":"F32","shape":[],"data_offsets":[0]}})", 4),
              HasSubstr("data_offsets has 1 numbers"));
  EXPECT_THAT(message_of(R"({"w":{"dtype":"F32","shape":[],"data_offsets":[0,4,8]}})", 4),
              HasSubstr("data_offsets has 3 numbers"));
  EXPECT_THAT(message_of(R"({"w":{"dtype":"F32","shape":[],"data_offsets":[-2,2]}})", 4),
              HasSubstr("data_offsets has the negative number -2"));
  EXPECT_THAT(message_of(R"({"w":{"dtype":"F32","shape":[],"data_offsets":{}}})", 4),
              HasSubstr("data_offsets: expected an array of integers, found an object"));
  EXPECT_THAT(message_of(R"({"w":{"dtype":"F32","shape":[],"data_offsets":[0,4],"x":1}})", 4),
              HasSubstr("unknown field \"x\""));
  EXPECT_THAT(message_of(R"({"w":{"dtype":"F32","dtype":"F32","shape":[],"data_offsets":[0,4]}})", 4),
              HasSubstr("dtype appears twice"));
  EXPECT_THAT(message_of(R"({"w":{"dtype":"F32","shape":[],"shape":[],"data_offsets":[0,4]}})", 4),
              HasSubstr("shape appears twice"));
}

TEST(Safetensors, RefusesALayoutThatLies) {
  const auto two = [](std::string_view a, std::string_view b) {
    return R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + std::string(a) +
           R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + std::string(b) + "}}";
  };
  EXPECT_EQ(message_of(two("[4,8]", "[0,4]"), 8), "accepted");  // any order
  EXPECT_THAT(message_of(two("[0,4]", "[2,6]"), 6),
              HasSubstr("tensor \"b\": data_offsets [2, 6] overlap tensor \"a\""));
  EXPECT_THAT(message_of(two("[0,4]", "[0,4]"), 4), HasSubstr("overlap"));
  EXPECT_THAT(message_of(two("[0,4]", "[6,10]"), 10),
              HasSubstr("tensor \"b\": 2 unused bytes before its data_offsets"));
  EXPECT_THAT(message_of(two("[0,4]", "[8,4]"), 8), HasSubstr("tensor \"b\": data_offsets are reversed: [8, 4]"));
  EXPECT_THAT(message_of(two("[0,4]", "[4,1099511627780]"), 8),
              HasSubstr("tensor \"b\": data_offsets [4, 1099511627780] lie beyond the file's 8 bytes of data"));
  EXPECT_THAT(message_of(two("[0,4]", "[9223372036854775803,9223372036854775807]"), 8), HasSubstr("lie beyond"));
  EXPECT_THAT(message_of(two("[0,4]", "[4,8]"), 6), HasSubstr("(is it truncated?)"));
  EXPECT_THAT(message_of(two("[0,4]", "[4,8]"), 24), HasSubstr("m.safetensors: 16 bytes follow the last tensor"));
  EXPECT_THAT(message_of(two("[0,4]", "[4,9]"), 9), HasSubstr("shape [4] of U8 needs 4 bytes, data_offsets give 5"));
  EXPECT_THAT(message_of(R"({"w":{"dtype":"F32","shape":[8589934592,8589934592],"data_offsets":[0,4]}})", 4),
              HasSubstr("shape [8589934592, 8589934592] is too large"));
  EXPECT_THAT(message_of(R"({"w":{"dtype":"F64","shape":[9223372036854775807],"data_offsets":[0,4]}})", 4),
              HasSubstr("is too large"));
  EXPECT_THAT(message_of(R"({"w":{"dtype":"F32","shape":[0,8589934592,8589934592],"data_offsets":[0,0]}})", 0),
              HasSubstr("is too large"));
  EXPECT_THAT(message_of(R"({"w":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", 2),
              HasSubstr("not a whole number of bytes"));
}

TEST(Safetensors, RefusesANameThatAppearsTwiceEvenWithEqualEntries) {
  EXPECT_EQ(
      message_of(
          R"({"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
          4),
      "m.safetensors: tensor \"w\": appears twice in the header");
  EXPECT_THAT(
      message_of(
          R"({"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"\u0077":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
          8),
      HasSubstr("appears twice in the header"));
}

TEST(Safetensors, EveryTruncationOfAFileIsRefused) {
  const std::string whole = safetensors_bytes(kTwo, "0123456789abWXYZ");
  ASSERT_EQ(message_of_file(whole), "accepted");
  for (std::size_t n = 0; n < whole.size(); ++n) EXPECT_NE(message_of_file(whole.substr(0, n)), "accepted") << n;
}

}  // namespace
}  // namespace sterling::formats
