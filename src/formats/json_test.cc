#include "formats/json.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/message.h"

namespace sterling::formats {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string message_of(std::string_view text, const JsonLimits& limits = {}) {
  const auto parsed = parse_json(text, "config.json", limits);
  return parsed.ok() ? "accepted" : parsed.error().message;
}

TEST(ParseJson, KeepsOrderAndValues) {
  const auto parsed =
      parse_json(R"( {"b": [1, -2, 18446744073709551615, 0.5, true, null], "a": {"x": "\u00e9\n"}} )", "f");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(boost::json::serialize(*parsed),
            "{\"b\":[1,-2,18446744073709551615,5E-1,true,null],\"a\":{\"x\":\"\u00e9\\n\"}}");
}

TEST(ParseJson, RoundsDecimalsCorrectly) {
  // The strings are the shortest forms of these doubles, so only correct rounding gives the same bits as the compiler.
  const auto parsed = parse_json(
      "[1e-06, 1e-05, 0.1, 10000000.0, 2.2250738585072014e-308, 1.7976931348623157e308, "
      "0.30000000000000004, 5e-324, 1e-400, 123456789012345678901234567890, -0.0, 9007199254740993.0]",
      "f");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  const double expected[] = {1e-06,
                             1e-05,
                             0.1,
                             10000000.0,
                             2.2250738585072014e-308,
                             1.7976931348623157e308,
                             0.30000000000000004,
                             5e-324,
                             0.0,
                             123456789012345678901234567890.0,
                             -0.0,
                             9007199254740992.0};
  const auto& array = parsed->get_array();
  ASSERT_EQ(array.size(), std::size(expected));
  for (std::size_t i = 0; i < array.size(); ++i) EXPECT_EQ(array[i].to_number<double>(), expected[i]) << i;
}

TEST(ParseJson, NamesTheFaultAndItsPlace) {
  EXPECT_THAT(message_of(""), HasSubstr("the JSON is empty"));
  EXPECT_THAT(message_of("{\"a\": 1,"), HasSubstr("the JSON ends in the middle"));
  EXPECT_THAT(message_of("{\n  \"a\": 1,\n  \"b\": x\n}"), StartsWith("config.json:3:8: not valid JSON"));
  EXPECT_THAT(message_of("{} {}"), HasSubstr("config.json:1:4: something follows the end"));
  EXPECT_THAT(message_of("{\"a\": 1,}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(message_of("// c\n{}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(message_of("[NaN]"), HasSubstr("not valid JSON"));
  EXPECT_THAT(message_of("[Infinity]"), HasSubstr("not valid JSON"));
  EXPECT_THAT(message_of("[01]"), HasSubstr("not valid JSON"));
  EXPECT_THAT(message_of("\"\xff\xfe\""), HasSubstr("not valid UTF-8"));
  EXPECT_THAT(message_of("\"\xc0\x80\""), HasSubstr("not valid UTF-8"));
  EXPECT_THAT(message_of("\"\xed\xa0\x80\""), HasSubstr("not valid UTF-8"));
  EXPECT_THAT(message_of("\"a\nb\""), HasSubstr("not valid JSON"));
  EXPECT_NE(message_of("\"\\ud800\""), "accepted");
}

TEST(ParseJson, RefusesAKeyThatAppearsTwice) {
  EXPECT_EQ(message_of(R"({"a": 1, "a": 1})"), "config.json: the key \"a\" appears twice");
  EXPECT_EQ(message_of(R"({"x": [0, {"k": {"b": 1, "a": 1, "b": 2}}]})"),
            "config.json: x[1].k: the key \"b\" appears twice");
  EXPECT_EQ(message_of(R"({"a": 1, "\u0061": 1})"),
            "config.json: the key \"a\" appears twice");  // the same key, escaped
  EXPECT_EQ(message_of(R"({"a": {"b": 1}, "b": {"b": 1}})"), "accepted");
}

TEST(ParseJson, RefusesNumbersBeyondADouble) {
  EXPECT_THAT(message_of(R"({"a": [1, 1e999]})"), HasSubstr("config.json"));
  EXPECT_EQ(message_of("{\"a\": [1, 1" + std::string(400, '0') + "]}"),
            "config.json: a[1]: the number \"1" + std::string(199, '0') + "\"... (401 bytes) is out of range");
  EXPECT_NE(message_of("1e99999999999999999999"), "accepted");
}

TEST(ParseJson, KeepsItsLimits) {
  EXPECT_THAT(message_of(std::string(200000, '[')), HasSubstr("nested deeper than 64 levels"));
  std::string objects;
  for (int i = 0; i < 100; ++i) objects += "{\"a\":";
  EXPECT_THAT(message_of(objects), HasSubstr("nested deeper than 64 levels"));
  EXPECT_EQ(message_of(std::string(60, '[') + std::string(60, ']')), "accepted");

  JsonLimits small;
  small.max_bytes = 10;
  EXPECT_THAT(message_of("[1,2,3,4,5,6]", small), HasSubstr("the JSON has 13 bytes, the limit is 10"));
}

TEST(ParseJson, WantsAnObjectWhereAskedForOne) {
  const auto parsed = parse_json_object("[1]", "config.json");
  ASSERT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.error().message, "config.json: expected a JSON object, found an array");
}

TEST(ReadJson, NamesTheMissingFile) {
  const auto parsed = read_json_object("/nonexistent/config.json");
  ASSERT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(parsed.error().message, HasSubstr("/nonexistent/config.json"));
}

TEST(Quote, IsFitForATerminal) {
  EXPECT_EQ(quote("a\"b\\c\n\t\x1b[31m"), R"("a\"b\\c\n\t\x1b[31m")");
  EXPECT_EQ(quote("\xff\xfeok \u00e9"), "\"\\xff\\xfeok \u00e9\"");
  EXPECT_EQ(quote("\u009b31m"), "\"\\u009b31m\"");
  EXPECT_EQ(quote(std::string(500, 'x')), "\"" + std::string(200, 'x') + "\"... (500 bytes)");
}

TEST(Utf8, AcceptsExactlyWellFormedText) {
  EXPECT_TRUE(is_valid_utf8("a\u00e9\u20ac\U0001f600\U0010ffff"));
  for (const char* bad : {"\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80",
                          "\xf5\x80\x80\x80", "\xe2\x82", "\xf0\x9f\x98", "\xc3"}) {
    EXPECT_FALSE(is_valid_utf8(bad));
  }
}

}  // namespace
}  // namespace sterling::formats
