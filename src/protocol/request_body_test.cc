#include "protocol/request_body.h"

#include <random>

#include <gtest/gtest.h>

#include "protocol/openai/render.h"
#include "protocol/openai/requests.h"

namespace sterling::protocol {
namespace {

TEST(RequestBody, OfAKeyThatStandsTwiceTheLastCounts) {
  const auto body = parse_body(R"({"a":1,"a":2})");
  ASSERT_TRUE(body.ok());
  EXPECT_EQ(body->at("a"), 2);
}

TEST(RequestBody, DepthEndsAtTheLimit) {
  const auto nested = [](int levels) {
    std::string open = "{\"a\":";
    std::string close = "}";
    for (int i = 1; i < levels; ++i) open += "[", close.insert(0, "]");
    return open + "1" + close;
  };
  EXPECT_TRUE(parse_body(nested(64)).ok());
  EXPECT_FALSE(parse_body(nested(65)).ok());
}

TEST(RequestBody, IntegersMayBeWrittenAsDoublesAndNotBeyond) {
  const auto integer = [](const char* text) { return as_integer(boost::json::parse(text)); };
  EXPECT_EQ(integer("5.0"), 5);
  EXPECT_EQ(integer("-3"), -3);
  EXPECT_EQ(integer("1e3"), 1000);
  EXPECT_FALSE(integer("5.5"));
  EXPECT_FALSE(integer("1e30"));
  EXPECT_FALSE(integer("9223372036854775808"));
  EXPECT_FALSE(integer("\"5\""));
}

TEST(RequestBody, MessagesStayUtf8WhenTheyQuoteALongText) {
  std::string text(39, 'a');
  for (int i = 0; i < 50; ++i) text += "漢";
  const std::string shown = describe(boost::json::value(text));
  EXPECT_EQ(shown, "the string \"" + std::string(39, 'a') + "\"… (189 bytes)");
  std::string key(63, 'k');
  key += "é";
  const auto refused = openai::parse_detokenize_request("{\"tokens\":[1],\"" + key + "\":1}");
  EXPECT_EQ(refused.error().param, std::string(63, 'k'));
}

// Bytes changed at random: never a crash, always a request or an error that renders to valid JSON.
TEST(RequestBody, SurvivesMutations) {
  const std::string seeds[] = {
      R"({"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"é"}]}],"n":2,"stop":["a"],"seed":-1})",
      R"({"prompt":[[1,2],[3]],"logit_bias":{"1":2.5},"logprobs":2,"stream_options":{"include_usage":true},"echo":true})",
      R"({"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{\"a\":1}"}}]}]})",
  };
  const std::string_view pieces[] = {"null", "-1",   "1e999",   "[]",   "{}", "\"\"",
                                     "true", "[[[[", "\\ud800", "\xff", ",",  ":"};
  std::mt19937 random(11);
  for (int round = 0; round < 20'000; ++round) {
    std::string body = seeds[random() % 3];
    for (unsigned k = random() % 4; k > 0; --k) {
      const std::size_t at = random() % body.size();
      switch (random() % 3) {
        case 0: body[at] = static_cast<char>(random()); break;
        case 1: body.erase(at, random() % 6); break;
        default: body.insert(at, pieces[random() % 12]);
      }
      if (body.empty()) body = "x";
    }
    const auto check = [&](const auto& parsed) {
      if (parsed.ok()) return;
      EXPECT_FALSE(parsed.error().message.empty());
      boost::json::error_code error;
      boost::json::parse(openai::render_error(parsed.error()), error);
      EXPECT_FALSE(error) << parsed.error().message;
    };
    check(openai::parse_chat_request(body, {}));
    check(openai::parse_completion_request(body));
    check(openai::parse_tokenize_request(body, {}));
    check(openai::parse_detokenize_request(body));
  }
}

}  // namespace
}  // namespace sterling::protocol
