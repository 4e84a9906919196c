// Routes, errors, streams and limits over real loopback sockets.
#include "server/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/testing/fake_server.h"

namespace sterling::server {
namespace {

using testing::error_field;
using testing::events_of;
using testing::FakeServer;
using ::testing::HasSubstr;
using testing::hello_with;
using testing::HttpAnswer;
using testing::HttpClient;
using testing::kHello;
using ::testing::StartsWith;

boost::json::value json_of(const HttpAnswer& answer) {
  return boost::json::parse(answer.body);
}

TEST(Routes, SmallDocuments) {
  FakeServer fake("x", [](ServerOptions& o) { o.server_info = [] { return std::string(R"({"port":0})"); }; });
  HttpClient client(fake.server->port());  // one connection for all of it
  EXPECT_EQ(client.call("GET", "/health").status, 200);
  EXPECT_EQ(client.call("GET", "/version").body, R"({"version":"1.2.3"})");
  EXPECT_EQ(client.call("GET", "/server_info?x=1").body, R"({"port":0})");
  EXPECT_EQ(client.call("GET", "/v1/precision").status, 404);
  const auto models = json_of(client.call("GET", "/v1/models"));
  EXPECT_EQ(models.at("data").at(0).at("id"), "byte-model");
  EXPECT_EQ(models.at("data").at(0).at("max_model_len"), 4096);
  EXPECT_EQ(models.at("data").at(0).at("generation_defaults").at("temperature").to_number<double>(), 1.0);
  EXPECT_EQ(json_of(client.call("GET", "/v1/models/alias%2Fof%20it")).at("id"), "alias/of it");
  EXPECT_EQ(client.call("GET", "/v1/models/other").status, 404);
  EXPECT_EQ(client.call("GET", "/v1/models/%zz").status, 404);
  const HttpAnswer head = client.call("HEAD", "/health");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.headers.at("content-length"), "15");
  EXPECT_EQ(client.call("GET", "/nowhere").status, 404);
  const HttpAnswer wrong = client.call("GET", "/v1/chat/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers.at("allow"), "POST, OPTIONS");
  EXPECT_EQ(error_field(wrong, "code"), "method_not_allowed");
  EXPECT_EQ(client.call("DELETE", "/health").status, 405);
  const HttpAnswer options = client.call("OPTIONS", "/v1/models");
  EXPECT_EQ(options.status, 204);
  EXPECT_EQ(options.headers.at("allow"), "GET, HEAD, OPTIONS");
  EXPECT_FALSE(options.headers.contains("access-control-allow-origin"));
}

TEST(Routes, ReadinessHasAReason) {
  FakeServer fake("x");
  EXPECT_EQ(fake.call("GET", "/ready").status, 200);
  fake.server->set_ready(false, "loading weights");
  const HttpAnswer answer = fake.call("GET", "/ready");
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(json_of(answer).at("reason"), "loading weights");
  EXPECT_EQ(fake.call("GET", "/health").status, 200);
}

TEST(Routes, TokenizeAndBack) {
  FakeServer fake("x");
  auto answer = json_of(fake.call("POST", "/tokenize", R"({"prompt":"hé","return_token_strs":true})"));
  EXPECT_EQ(answer.at("count"), 3);
  EXPECT_EQ(answer.at("tokens"), boost::json::parse("[104,195,169]"));
  EXPECT_EQ(answer.at("token_strs").at(1), "\\xc3");
  answer = json_of(fake.call("POST", "/tokenize", R"({"messages":[{"role":"user","content":"Hi"}]})"));
  EXPECT_EQ(answer.at("count"), 21);
  answer = json_of(fake.call("POST", "/detokenize", R"({"tokens":[104,195,169]})"));
  EXPECT_EQ(answer.at("prompt"), "hé");
  EXPECT_EQ(error_field(fake.call("POST", "/detokenize", R"({"tokens":[1,300]})"), "param"), "tokens[1]");
  EXPECT_EQ(error_field(fake.call("POST", "/tokenize", "{}"), "param"), "prompt");
}

TEST(Generation, AnswersWhole) {
  FakeServer fake("Grüße 👋");
  const HttpAnswer answer = fake.chat();
  ASSERT_EQ(answer.status, 200) << answer.body;
  const auto body = json_of(answer);
  EXPECT_EQ(body.at("object"), "chat.completion");
  EXPECT_EQ(body.at("model"), "byte-model");
  EXPECT_EQ(body.at("choices").at(0).at("message").at("content"), "Grüße 👋");
  EXPECT_EQ(body.at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_EQ(body.at("usage").at("completion_tokens"), 13);
  EXPECT_EQ(body.at("usage").at("total_tokens"), 34);
  EXPECT_EQ(answer.headers.at("x-request-id"), std::string_view(body.at("id").as_string()));
}

TEST(Generation, StreamsTheSameContent) {
  FakeServer fake("Grüße 👋, one two three four");
  const std::string common =
      R"({"n":2,"logprobs":true,"top_logprobs":2,"stop":["three"],"seed":-3,"return_token_ids":true)";
  const auto whole = json_of(fake.chat(hello_with(common + "}")));
  const HttpAnswer answer =
      fake.chat(hello_with(common + R"(,"stream":true,"stream_options":{"include_usage":true}})"));
  ASSERT_EQ(answer.status, 200);
  EXPECT_THAT(answer.headers.at("content-type"), StartsWith("text/event-stream"));
  bool done = false;
  const auto events = events_of(answer.body, &done);
  EXPECT_TRUE(done);
  std::string text[2], finish[2];
  boost::json::array logprobs[2], ids[2];
  for (std::size_t i = 0; i + 1 < events.size(); ++i) {
    EXPECT_EQ(events[i].at("object"), "chat.completion.chunk");
    EXPECT_EQ(events[i].at("id"), events[0].at("id"));
    EXPECT_TRUE(events[i].at("usage").is_null());
    const auto& choice = events[i].at("choices").at(0);
    const auto at = choice.at("index").to_number<std::size_t>();
    const auto& delta = choice.at("delta").as_object();
    if (i < 2) {
      EXPECT_EQ(delta.at("role"), "assistant");
    }
    if (delta.contains("content")) text[at] += std::string_view(delta.at("content").as_string());
    if (choice.at("finish_reason").is_string()) finish[at] = std::string_view(choice.at("finish_reason").as_string());
    if (choice.at("logprobs").is_object()) {
      for (const auto& entry : choice.at("logprobs").at("content").as_array()) logprobs[at].push_back(entry);
    }
    if (choice.as_object().contains("token_ids")) {
      for (const auto& id : choice.at("token_ids").as_array()) ids[at].push_back(id);
    }
  }
  EXPECT_TRUE(events.back().at("choices").as_array().empty());
  EXPECT_EQ(events.back().at("usage"), whole.at("usage"));
  EXPECT_EQ(events[0].at("prompt_token_ids"), whole.at("prompt_token_ids"));
  for (std::size_t i = 0; i < 2; ++i) {
    const auto& choice = whole.at("choices").at(i);
    EXPECT_EQ(text[i], "Grüße 👋, one two ");
    EXPECT_EQ(std::string_view(choice.at("message").at("content").as_string()), text[i]);
    EXPECT_EQ(std::string_view(choice.at("finish_reason").as_string()), finish[i]);
    EXPECT_EQ(choice.at("stop_reason"), "three");
    EXPECT_EQ(choice.at("logprobs").at("content"), logprobs[i]);
    EXPECT_EQ(choice.at("token_ids"), ids[i]);
  }
}

TEST(Generation, CompletionsStreamTheSameContent) {
  FakeServer fake("out put");
  const std::string common =
      R"({"prompt":[[1,2],[3]],"n":2,"logprobs":1,"echo":false,"return_token_ids":true,"max_tokens":5)";
  const auto whole = json_of(fake.call("POST", "/v1/completions", common + "}"));
  ASSERT_EQ(whole.at("choices").as_array().size(), 4U);
  EXPECT_EQ(whole.at("choices").at(2).at("prompt_token_ids"), boost::json::parse("[3]"));
  bool done = false;
  const auto events = events_of(fake.call("POST", "/v1/completions", common + R"(,"stream":true})").body, &done);
  EXPECT_TRUE(done);
  std::map<std::int64_t, std::string> text;
  std::map<std::int64_t, boost::json::array> logprobs;
  for (const auto& event : events) {
    const auto& choice = event.at("choices").at(0);
    const auto at = choice.at("index").as_int64();
    text[at] += std::string_view(choice.at("text").as_string());
    if (choice.at("logprobs").is_null()) continue;
    for (const auto& p : choice.at("logprobs").at("token_logprobs").as_array()) logprobs[at].push_back(p);
  }
  for (const auto& choice : whole.at("choices").as_array()) {
    const auto at = choice.at("index").as_int64();
    EXPECT_EQ(std::string_view(choice.at("text").as_string()), text[at]);
    EXPECT_EQ(text[at], "out p");
    EXPECT_EQ(choice.at("finish_reason"), "length");
    EXPECT_EQ(choice.at("logprobs").at("token_logprobs"), logprobs[at]);
  }
}

TEST(Generation, AnEngineFailureAmidAStreamIsAnEventAndNoDone) {
  FakeServer fake(serving::testing::FakeEngineOptions{
      .script = [](const engine::TokenRequest&, std::size_t at) { return at == 50 ? -1 : 'a'; },
      .step = std::chrono::microseconds(2000)});
  bool done = true;
  const auto events = events_of(fake.chat(hello_with(R"({"stream":true})")).body, &done);
  ASSERT_GT(events.size(), 2U);
  EXPECT_FALSE(done);
  EXPECT_EQ(events.back().at("error").at("type"), "server_error");
  EXPECT_EQ(fake.chat().status, 500);
}

TEST(Generation, AFullQueueIs429) {
  FakeServer fake("x", {}, {}, /*paused=*/true);
  const HttpAnswer answer = fake.chat(hello_with(R"({"n":9})"));  // the fake's queue holds eight
  EXPECT_EQ(answer.status, 429);
  EXPECT_EQ(answer.headers.at("retry-after"), "1");
  EXPECT_EQ(error_field(answer, "code"), "queue_full");
}

TEST(Generation, Http10StreamsUntilTheConnectionCloses) {
  FakeServer fake("hello");
  HttpClient client(fake.server->port());
  const std::string body = hello_with(R"({"stream":true})");
  client.send("POST /v1/chat/completions HTTP/1.0\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
              body);
  const HttpAnswer answer = client.read_answer();
  EXPECT_EQ(answer.status, 200);
  EXPECT_FALSE(answer.headers.contains("transfer-encoding"));
  bool done = false;
  EXPECT_EQ(events_of(answer.body, &done).size(), 7U);
  EXPECT_TRUE(done);
}

TEST(Generation, RequestTimeoutIsAnError) {
  FakeServer fake(
      "x", [](ServerOptions& o) { o.request_timeout = std::chrono::milliseconds(50); }, {}, /*paused=*/true);
  const HttpAnswer answer = fake.chat();
  EXPECT_EQ(answer.status, 504);
  EXPECT_EQ(error_field(answer, "code"), "request_timeout");
  EXPECT_TRUE(fake.engine.wait_cancelled(1));
}

TEST(Generation, MetricsTell) {
  FakeServer fake("hello");
  fake.chat();
  fake.chat(hello_with(R"({"stream":true})"));
  fake.chat(R"({"messages":[]})");
  const std::string text = fake.call("GET", "/metrics").body;
  for (const char* line : {
           "sterling:build_info{model_name=\"byte-model\",version=\"1.2.3\"} 1",
           "sterling:generation_tokens_total{model_name=\"byte-model\"} 12",
           "sterling:prompt_tokens_total{model_name=\"byte-model\"} 42",
           "sterling:request_success_total{finished_reason=\"stop\",model_name=\"byte-model\"} 2",
           "sterling:requests_total{model_name=\"byte-model\",status=\"completed\"} 2",
           "sterling:requests_total{model_name=\"byte-model\",status=\"refused\"} 1",
           "sterling:time_to_first_token_seconds_count{model_name=\"byte-model\"} 2",
           "sterling:inter_token_latency_seconds_count{model_name=\"byte-model\"} 10",
           "sterling:e2e_request_latency_seconds_count{model_name=\"byte-model\"} 2",
           "sterling:http_responses_total{model_name=\"byte-model\",route=\"/v1/chat/completions\",status=\"400\"} 1",
           "# TYPE sterling:generation_tokens_total counter",
       }) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(Keys, AreAskedForWhereTextIsHandled) {
  FakeServer fake("x", [](ServerOptions& o) { o.api_keys = {"first-key", "second"}; });
  EXPECT_EQ(fake.call("GET", "/health").status, 200);
  EXPECT_EQ(fake.call("GET", "/metrics").status, 200);
  const HttpAnswer none = fake.chat();
  EXPECT_EQ(none.status, 401);
  EXPECT_EQ(none.headers.at("www-authenticate"), "Bearer");
  EXPECT_EQ(error_field(none, "code"), "invalid_api_key");
  EXPECT_EQ(fake.call("GET", "/v1/models").status, 401);
  const auto with = [&](std::string_view value) {
    return fake.call("POST", "/v1/chat/completions", kHello, "Authorization: " + std::string(value) + "\r\n").status;
  };
  EXPECT_EQ(with("Bearer first-key"), 200);
  EXPECT_EQ(with("bearer second"), 200);
  for (const char* wrong :
       {"Bearer first-ke", "Bearer first-key2", "Bearer ", "Bearer", "first-key", "Basic first-key"}) {
    EXPECT_EQ(with(wrong), 401) << wrong;
  }
}

TEST(Keys, PagesOfOtherOriginsAreRefused) {
  FakeServer fake("x");
  EXPECT_EQ(fake.call("POST", "/v1/chat/completions", kHello, "Origin: http://evil.example\r\n").status, 403);
  EXPECT_EQ(fake.call("POST", "/v1/chat/completions", kHello, "Origin: null\r\n").status, 403);
  EXPECT_EQ(fake.call("POST", "/v1/chat/completions", kHello, "Origin: http://localhost\r\n").status, 200);
}

TEST(Start, SaysWhyItCannotListen) {
  FakeServer fake("x");
  ServerOptions options;
  options.port = fake.server->port();
  auto taken = Server::start(*fake.service, options);
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(taken.error().message, HasSubstr(std::to_string(options.port)));
  options.port = 0;
  options.address = "not an address";
  EXPECT_EQ(Server::start(*fake.service, options).error().code, ErrorCode::kInvalidArgument);
  options.address = "192.0.2.1";  // reserved for documentation
  EXPECT_EQ(Server::start(*fake.service, options).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace sterling::server
