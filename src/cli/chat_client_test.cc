#include "cli/chat_client.h"

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sterling::cli {
namespace {

using testing::HasSubstr;

TEST(ServerUrl, AcceptsWhatPeoplePaste) {
  const auto parse = [](std::string_view url) {
    auto result = parse_server_url(url);
    EXPECT_TRUE(result.ok()) << url;
    return result.ok() ? result->host + "|" + result->port + "|" + result->prefix : std::string();
  };
  EXPECT_EQ(parse("http://localhost:8000"), "localhost|8000|");
  EXPECT_EQ(parse("http://127.0.0.1:8000/"), "127.0.0.1|8000|");
  EXPECT_EQ(parse("http://127.0.0.1:8000/v1/"), "127.0.0.1|8000|");
  EXPECT_EQ(parse("http://host/llm/v1"), "host|80|/llm");
  EXPECT_EQ(parse("http://[::1]:9000"), "::1|9000|");
  EXPECT_EQ(parse("http://[::1]"), "::1|80|");
}

TEST(ServerUrl, RefusesTheRest) {
  EXPECT_EQ(parse_server_url("https://host").error().code, ErrorCode::kUnsupported);
  for (const char* url :
       {"ftp://host", "http://", "http://:80", "http://host:0", "http://host:65536", "http://host:8o", "http://[::1",
        "http://[::1]x:80", "http://user@host", "http://host?x=1", "http://host:80\r\nX: y"}) {
    const auto result = parse_server_url(url);
    ASSERT_FALSE(result.ok()) << url;
    EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument) << url;
  }
}

TEST(ChatRequest, HasWhatWasAskedAndNothingElse) {
  const auto plain = boost::json::parse(chat_request_json({{"user", "a \"b\"\n"}}, {"m", {}, {}, {}})).get_object();
  EXPECT_EQ(plain.at("messages").at(0).at("content"), "a \"b\"\n");
  EXPECT_EQ(plain.at("stream"), true);
  EXPECT_FALSE(plain.contains("temperature"));
  EXPECT_FALSE(plain.contains("max_tokens"));
  const auto full = boost::json::parse(chat_request_json({}, {"m", 0.5, 7, 3})).get_object();
  EXPECT_EQ(full.at("temperature"), 0.5);
  EXPECT_EQ(full.at("max_tokens"), 7);
  EXPECT_EQ(full.at("seed"), 3);
}

TEST(ChatStream, CollectsTextReasoningAndUsage) {
  std::string text;
  std::string reasoning;
  const ChatSink sink{[&](std::string_view piece) { text += piece; },
                      [&](std::string_view piece) { reasoning += piece; }};
  ChatStream stream(sink);
  for (const char* event : {R"({"choices":[{"delta":{"role":"assistant","content":""}}]})",
                            R"({"choices":[{"delta":{"reasoning_content":"hm","reasoning":"hm"}}]})",
                            R"({"choices":[{"delta":{"content":"Pa"}}]})",
                            R"({"choices":[{"delta":{"content":"ris"},"finish_reason":"stop"}]})",
                            R"({"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2}})", "[DONE]"}) {
    ASSERT_TRUE(stream.take(event).ok()) << event;
  }
  EXPECT_TRUE(stream.done());
  EXPECT_EQ(text, "Paris");
  EXPECT_EQ(reasoning, "hm");
  EXPECT_EQ(stream.answer().text, "Paris");
  EXPECT_EQ(stream.answer().finish_reason, "stop");
  EXPECT_EQ(stream.answer().prompt_tokens, 5);
  EXPECT_EQ(stream.answer().completion_tokens, 2);
}

TEST(ChatStream, ErrorsInTheStream) {
  const ChatSink sink;
  ChatStream stream(sink);
  EXPECT_EQ(stream.take("{").error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(stream.take("[1]").error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(stream.take(R"({"error":{"message":"out of memory"}})").error().message, "out of memory");
  EXPECT_TRUE(stream.take(R"({"choices":[7]})").ok());  // odd, but nothing to show
}

TEST(ApiError, ShowsMessageAndField) {
  const Error error = api_error(400, R"({"error":{"message":"must be at least 0","param":"temperature","code":"x"}})");
  EXPECT_THAT(error.message, HasSubstr("must be at least 0"));
  EXPECT_THAT(error.message, HasSubstr("temperature"));
  EXPECT_EQ(error.where, "temperature");
  EXPECT_EQ(api_error(401, "").code, ErrorCode::kPermission);
  EXPECT_THAT(api_error(502, "<html>").message, HasSubstr("502"));
}

TEST(ChatAnswer, RateLeavesOutTheFirstToken) {
  ChatAnswer answer;
  EXPECT_EQ(answer.tokens_per_second(), std::nullopt);
  answer.completion_tokens = 11;
  answer.seconds_to_first = 1.0;
  answer.seconds = 3.0;
  EXPECT_EQ(answer.tokens_per_second(), 5.0);
}

}  // namespace
}  // namespace sterling::cli
