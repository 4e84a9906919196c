#include "formats/gguf.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/gguf_builder.h"

namespace sterling::formats {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string message_of(const std::string& bytes) {
  const auto parsed = parse_gguf(as_bytes(bytes), "m.gguf");
  return parsed.ok() ? "accepted" : parsed.error().message;
}

GgufBuilder sample() {
  GgufBuilder builder;
  builder.string("general.architecture", "llama").u32("a.u32", 7).u64("a.u64", ~std::uint64_t{0}).f32("a.f32", 0.5f);
  builder.flag("a.flag", true).raw("a.i8", 1, "\xff").raw("a.i64", 11, little_endian(std::int64_t{-5}));
  builder.raw("a.f64", 12, little_endian(0.25)).strings("a.strings", {"x", "", "yz"}).integers("a.integers", {1, -2});
  builder.zeros("b", {3, 2}).zeros("a", {});
  return builder;
}

TEST(Gguf, ReadsMetadataAndTensors) {
  const std::string bytes = sample().bytes();
  const auto parsed = parse_gguf(as_bytes(bytes), "m.gguf");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed->version, 3u);
  const GgufMetadata& metadata = parsed->metadata;
  EXPECT_EQ(*metadata.get<std::string_view>("general.architecture"), "llama");
  EXPECT_EQ(*metadata.get<std::int64_t>("a.u32"), 7);
  EXPECT_EQ(*metadata.get<std::uint64_t>("a.u64"), ~std::uint64_t{0});
  EXPECT_EQ(*metadata.get<double>("a.f32"), 0.5);
  EXPECT_EQ(*metadata.get<double>("a.f64"), 0.25);
  EXPECT_EQ(*metadata.get<bool>("a.flag"), true);
  EXPECT_EQ(*metadata.get<std::int64_t>("a.i8"), -1);
  EXPECT_EQ(*metadata.get<std::int64_t>("a.i64"), -5);
  EXPECT_THAT(*metadata.get<GgufStrings>("a.strings"), ElementsAre("x", "", "yz"));
  EXPECT_THAT(*metadata.get<GgufIntegers>("a.integers"), ElementsAre(1, -2));
  EXPECT_EQ(metadata.find("absent"), nullptr);
  EXPECT_EQ(metadata.get<bool>("a.u32"), nullptr);
  ASSERT_EQ(parsed->tensors.size(), 2u);
  EXPECT_EQ(parsed->tensors[0].name, "b");
  EXPECT_THAT(parsed->tensors[0].shape, ElementsAre(2, 3));
  EXPECT_EQ(parsed->tensors[0].data.size(), 24u);
  EXPECT_EQ(parsed->tensors[1].data.size(), 4u);
  EXPECT_EQ(message_of(sample().bytes(2)), "accepted");
  EXPECT_EQ(message_of(GgufBuilder().bytes()), "accepted");
}

TEST(Gguf, RefusesOtherFilesAndVersions) {
  EXPECT_THAT(message_of(""), AllOf(StartsWith("m.gguf: "), HasSubstr("is not a GGUF file")));
  EXPECT_THAT(message_of("GGU"), HasSubstr("is not a GGUF file"));
  EXPECT_THAT(message_of("ggjt1234"), HasSubstr("is not a GGUF file"));
  EXPECT_THAT(message_of("GGUF"), HasSubstr("ends inside the header"));
  EXPECT_THAT(message_of(sample().bytes(1)), HasSubstr("is GGUF version 1; accepted: 2, 3"));
  EXPECT_THAT(message_of(sample().bytes(4)), HasSubstr("is GGUF version 4; accepted: 2, 3"));
  EXPECT_THAT(message_of(sample().bytes(0x03000000)), HasSubstr("big-endian GGUF file; accepted: little endian"));
  EXPECT_THAT(message_of(GgufBuilder()
                             .raw("split.count", 2, little_endian(std::uint16_t{3}))
                             .raw("split.no", 2, little_endian(std::uint16_t{0}))
                             .bytes()),
              HasSubstr("is part 1 of 3 of a split GGUF"));
  EXPECT_EQ(message_of(GgufBuilder().raw("split.count", 2, little_endian(std::uint16_t{1})).bytes()), "accepted");
}

TEST(Gguf, EveryTruncationIsRefused) {
  const std::string whole = sample().bytes();
  const std::size_t last_needed = whole.size() - 28;  // the last tensor has 4 bytes and 28 of padding
  for (std::size_t n = 0; n < last_needed; ++n) EXPECT_NE(message_of(whole.substr(0, n)), "accepted") << n;
  EXPECT_EQ(message_of(whole.substr(0, last_needed)), "accepted");
}

std::string head(std::uint64_t tensors, std::uint64_t pairs) {
  return "GGUF" + little_endian(std::uint32_t{3}) + little_endian(tensors) + little_endian(pairs);
}

TEST(Gguf, RefusesAbsurdCountsAndLengths) {
  constexpr std::uint64_t kHuge = (std::uint64_t{1} << 63) - 1;
  EXPECT_THAT(message_of(head(kHuge, 0)), HasSubstr("announces 9223372036854775807 tensors, the limit is"));
  EXPECT_THAT(message_of(head(0, ~std::uint64_t{0})), HasSubstr("announces 18446744073709551615 metadata keys"));
  EXPECT_THAT(message_of(head(1000000, 0)), HasSubstr("ends inside the entry of tensor 1 of 1000000"));
  EXPECT_THAT(message_of(head(0, 5) + little_endian(kHuge) + "abc"), HasSubstr("ends inside metadata key 1 of 5"));
  EXPECT_THAT(message_of(head(0, 1) + little_endian(~std::uint64_t{0})), HasSubstr("ends inside metadata key 1"));
  EXPECT_THAT(message_of(GgufBuilder().raw("k", 8, little_endian(kHuge) + "x").bytes()),
              HasSubstr("ends inside the value of \"k\""));
  const auto array = [](std::uint32_t type, std::uint64_t count) { return little_endian(type) + little_endian(count); };
  EXPECT_THAT(message_of(GgufBuilder().raw("k", 9, array(8, kHuge)).bytes()),
              HasSubstr("metadata key \"k\" announces 9223372036854775807 elements, more than the file can hold"));
  EXPECT_THAT(message_of(GgufBuilder().raw("k", 9, array(10, std::uint64_t{1} << 61)).bytes()),
              HasSubstr("more than the file can hold"));
  EXPECT_THAT(
      message_of(GgufBuilder().raw("k", 9, array(8, 2) + little_endian(std::uint64_t{90}) + "12345678").bytes()),
      HasSubstr("ends inside the strings of \"k\""));
  EXPECT_THAT(message_of(GgufBuilder().raw("k", 9, array(0, (1 << 25) + 1) + std::string((1 << 25) + 1, 'x')).bytes()),
              HasSubstr("metadata arrays hold more than 33554432 elements"));
}

TEST(Gguf, RefusesMetadataThatIsWrong) {
  EXPECT_THAT(message_of(GgufBuilder().u32("k", 1).u32("j", 1).u32("k", 1).bytes()),
              HasSubstr("metadata key \"k\" appears twice"));
  EXPECT_THAT(message_of(GgufBuilder().u32("", 1).bytes()), HasSubstr("metadata key 1 of 1 is not a name"));
  EXPECT_THAT(message_of(GgufBuilder().u32("\xff", 1).bytes()), HasSubstr("is not a name"));
  EXPECT_THAT(message_of(GgufBuilder().u32(std::string(70000, 'k'), 1).bytes()), HasSubstr("is not a name"));
  EXPECT_THAT(message_of(GgufBuilder().raw("k", 13, "12345678").bytes()),
              HasSubstr("metadata key \"k\" has the unknown type 13"));
  EXPECT_THAT(message_of(GgufBuilder().raw("k", 0xffffffffu, "12345678").bytes()),
              HasSubstr("unknown type 4294967295"));
  EXPECT_THAT(message_of(GgufBuilder().raw("k", 7, "\2").bytes()), HasSubstr("a boolean is neither 0 nor 1"));
  EXPECT_THAT(
      message_of(GgufBuilder().raw("k", 9, little_endian(std::uint32_t{13}) + little_endian(std::uint64_t{0})).bytes()),
      HasSubstr("is an array of the unknown type 13"));
  EXPECT_THAT(
      message_of(GgufBuilder().raw("k", 9, little_endian(std::uint32_t{9}) + little_endian(std::uint64_t{1})).bytes()),
      HasSubstr("is an array of arrays"));
  EXPECT_THAT(
      message_of(
          GgufBuilder().raw("k", 9, little_endian(std::uint32_t{7}) + little_endian(std::uint64_t{1}) + "\2").bytes()),
      HasSubstr("an element is out of range"));
  for (const std::uint32_t alignment : {0u, 3u, 48u, 0x80000000u}) {
    EXPECT_THAT(message_of(GgufBuilder().u32("general.alignment", alignment).bytes()),
                HasSubstr("is not a power of two"))
        << alignment;
  }
  EXPECT_THAT(message_of(GgufBuilder().string("general.alignment", "32").bytes()), HasSubstr("is not a power of two"));
}

TEST(Gguf, RefusesTensorsThatLie) {
  const auto one = [](std::vector<std::uint64_t> extents, std::uint32_t type, std::uint64_t offset, std::size_t data) {
    return message_of(GgufBuilder().entry("w", extents, type, offset).data(data).bytes());
  };
  EXPECT_EQ(one({8}, 0, 0, 32), "accepted");
  EXPECT_THAT(one({8}, 0, 32, 32),
              HasSubstr("tensor \"w\": 32 bytes at offset 32 lie beyond the file's 32 bytes of data"));
  EXPECT_THAT(one({8}, 0, 0, 31), HasSubstr("(is it truncated?)"));
  EXPECT_THAT(one({8}, 0, std::uint64_t{1} << 63, 32), HasSubstr("lie beyond"));
  EXPECT_THAT(one({8}, 0, ~std::uint64_t{0} - 31, 32), HasSubstr("lie beyond"));
  EXPECT_THAT(one({8}, 0, 8, 64), HasSubstr("offset 8 is not a multiple of the alignment 32"));
  EXPECT_THAT(one({~std::uint64_t{0}}, 0, 0, 32), HasSubstr("absurd extent 18446744073709551615"));
  EXPECT_THAT(one({std::uint64_t{1} << 62, 8}, 0, 0, 32), HasSubstr("is too large"));
  EXPECT_THAT(one({std::uint64_t{1} << 33, std::uint64_t{1} << 33}, 0, 0, 32), HasSubstr("is too large"));
  EXPECT_THAT(one({33}, 2, 0, 64), HasSubstr("rows of 33 elements are not whole blocks of Q4_0 (32 elements)"));
  EXPECT_THAT(one({16, 2}, 2, 0, 64), HasSubstr("not whole blocks"));
  EXPECT_THAT(one({1, 1, 1, 1, 1}, 0, 0, 32), HasSubstr("has 5 extents, at most 4 are allowed"));
  EXPECT_THAT(
      one({8}, 10, 0, 32),
      HasSubstr(
          "tensor \"w\" has type Q2_K; accepted: F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, BF16"));
  EXPECT_THAT(one({8}, 39, 0, 32), HasSubstr("has type MXFP4"));
  EXPECT_THAT(one({8}, 28, 0, 64), HasSubstr("has type F64"));
  EXPECT_THAT(one({8}, 4, 0, 32), HasSubstr("has type number 4"));
  EXPECT_THAT(one({8}, 0xffffffffu, 0, 32), HasSubstr("has type number 4294967295"));

  const auto two = [](std::string_view second, std::uint64_t offset) {
    return message_of(GgufBuilder().entry("a", {16}, 0, 0).entry(second, {16}, 0, offset).data(192).bytes());
  };
  EXPECT_EQ(two("b", 64), "accepted");
  EXPECT_THAT(two("b", 32), HasSubstr("tensor \"b\": offset 32 overlaps tensor \"a\""));
  EXPECT_THAT(two("b", 0), HasSubstr("overlaps tensor"));
  EXPECT_THAT(two("a", 64), HasSubstr("tensor \"a\" appears twice"));
  EXPECT_THAT(two("", 64), HasSubstr("tensor 2 of 2 has no proper name"));
  EXPECT_THAT(two("\xc3", 64), HasSubstr("has no proper name: \"\\xc3\""));
}

}  // namespace
}  // namespace sterling::formats
