// What a client may send and must not: each gets a clear answer, and the server goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/testing/fake_server.h"

namespace sterling::server {
namespace {

using testing::error_field;
using testing::FakeServer;
using ::testing::HasSubstr;
using testing::hello_with;
using testing::HttpAnswer;
using testing::HttpClient;
using testing::kHello;

struct BadBody {
  const char* name;
  const char* path;
  std::string body;
  int status;
  const char* param;
  const char* in_message;
};

std::string many(std::string_view piece, std::size_t times) {
  std::string out;
  for (std::size_t i = 0; i < times; ++i) out += piece;
  return out;
}

constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kText = "/v1/completions";

std::vector<BadBody> bad_bodies() {
  return {
      {"empty", kChat, " ", 400, "", "no body"},
      {"malformed", kChat, R"({"messages":)", 400, "", "not valid JSON"},
      {"trailing", kChat, kHello + "x", 400, "", "not valid JSON at byte"},
      {"not an object", kChat, "[1]", 400, "", "an array"},
      {"deep", kChat, many("[", 100'000), 400, "", "nested too deeply"},
      {"deep in a field", kChat, R"({"messages":)" + many("{\"a\":", 1000) + "1" + many("}", 1000) + "}", 400, "",
       "nested"},
      {"not UTF-8", kChat, "{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\xfe\"}]}", 400, "", "not valid JSON"},
      {"overlong UTF-8", kChat, "{\"messages\":[{\"role\":\"user\",\"content\":\"\xc0\xaf\"}]}", 400, "",
       "not valid JSON"},
      {"lone surrogate", kChat, R"({"messages":[{"role":"user","content":"\ud800"}]})", 400, "", "not valid JSON"},
      {"number beyond double", kChat, R"({"temperature":1e999,)" + kHello.substr(1), 400, "temperature", "from 0 to 2"},
      {"unknown model", kChat, hello_with(R"({"model":"gpt-4o"})"), 404, "model", "byte-model"},
      {"no messages", kChat, R"({"model":"byte-model"})", 400, "messages", "missing"},
      {"empty messages", kChat, R"({"messages":[]})", 400, "messages", "at least one"},
      {"zero max_tokens", kChat, hello_with(R"({"max_tokens":0})"), 400, "max_tokens", "at least 1"},
      {"huge max_tokens", kChat, hello_with(R"({"max_tokens":1000000000})"), 400, "max_tokens", "1000000000"},
      {"huge max_completion_tokens", kChat, hello_with(R"({"max_completion_tokens":1000000000})"), 400,
       "max_completion_tokens", "21 tokens"},
      {"negative max_tokens", kChat, hello_with(R"({"max_tokens":-1})"), 400, "max_tokens", "-1"},
      {"max_tokens beyond 64 bits", kChat, hello_with(R"({"max_tokens":1e30})"), 400, "max_tokens", "accepted"},
      {"text temperature", kChat, hello_with(R"({"temperature":"hot"})"), 400, "temperature", "\"hot\""},
      {"negative temperature", kChat, hello_with(R"({"temperature":-0.1})"), 400, "temperature", "from 0 to 2"},
      {"n 0", kChat, hello_with(R"({"n":0})"), 400, "n", "from 1"},
      {"ids beyond the vocabulary", kText, R"({"prompt":[1,2,259]})", 400, "prompt[2]", "0 to 258"},
      {"negative id", kText, R"({"prompt":[[1],[-5]]})", 400, "prompt[1][0]", "-5"},
      {"id beyond 32 bits", kText, R"({"prompt":[4294967296]})", 400, "prompt[0]", "4294967296"},
      {"mixed ids", kText, R"({"prompt":[1,"a"]})", 400, "prompt[1]", "token id"},
      {"empty prompt", kText, R"({"prompt":""})", 400, "prompt", "at least one token"},
      {"empty list", kText, R"({"prompt":[]})", 400, "prompt", "at least one"},
      {"too long a prompt", kText, R"({"prompt":")" + many("a", 5000) + "\"}", 400, "prompt", "5000"},
      {"image", kChat, R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]})",
       400, "messages[0].content[0]", "image"},
      {"misspelt field", kChat, hello_with(R"({"temprature":1})"), 400, "temprature", "not a field"},
      {"tools", kChat, hello_with(R"({"tools":[{"type":"function"}]})"), 400, "tools", "not supported"},
  };
}

TEST(BadInput, BodiesGetTheirError) {
  FakeServer fake("fine");
  HttpClient client(fake.server->port());  // the connection outlives every refusal
  for (const BadBody& bad : bad_bodies()) {
    const HttpAnswer answer = client.call("POST", bad.path, bad.body);
    EXPECT_EQ(answer.status, bad.status) << bad.name << ": " << answer.body;
    EXPECT_EQ(error_field(answer, "param"), bad.param) << bad.name << ": " << answer.body;
    EXPECT_THAT(error_field(answer, "message"), HasSubstr(bad.in_message)) << bad.name;
    EXPECT_EQ(error_field(answer, "type"), "invalid_request_error") << bad.name;
  }
  EXPECT_EQ(client.call("POST", kChat, kHello).status, 200);
  EXPECT_EQ(fake.engine.stats().requests_submitted, 1U);
}

TEST(BadInput, HugeBodiesAreRefusedBeforeTheyAreRead) {
  FakeServer fake("x", [](ServerOptions& o) { o.max_body_bytes = 100'000; });
  HttpClient announced(fake.server->port());
  announced.send("POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999\r\n\r\n");
  EXPECT_EQ(announced.read_answer().status, 413);

  // A client that sends it all before it listens still gets the answer, not a reset.
  const std::string big(5'000'000, 'a');
  HttpClient sent(fake.server->port());
  EXPECT_TRUE(sent.send(HttpClient::request("POST", kText, big)));
  const HttpAnswer answer = sent.read_answer();
  EXPECT_EQ(answer.status, 413);
  EXPECT_THAT(error_field(answer, "message"), HasSubstr("100000"));

  HttpClient chunked(fake.server->port());
  chunked.send("POST /v1/completions HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 20; ++i) chunked.send("4000\r\n" + std::string(0x4000, 'a') + "\r\n");
  EXPECT_EQ(chunked.read_answer().status, 413);
}

TEST(BadInput, MalformedHttp) {
  FakeServer fake("x", [](ServerOptions& o) { o.max_header_bytes = 8192; });
  const auto status = [&](std::string_view bytes) {
    HttpClient client(fake.server->port());
    client.send(bytes);
    return client.read_answer().status;
  };
  EXPECT_EQ(status("hello there\r\n\r\n"), 400);
  EXPECT_EQ(status("GET / HTTP/9.9\r\nHost: h\r\n\r\n"), 400);
  EXPECT_EQ(status("GET /health HTTP/1.1\r\n\r\n"), 400);  // no Host
  EXPECT_EQ(status("POST /tokenize HTTP/1.1\r\nHost: h\r\nContent-Length: 1x\r\n\r\n"), 400);
  EXPECT_EQ(status("POST /tokenize HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n"), 400);
  EXPECT_EQ(status("POST /tokenize HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"), 400);
  EXPECT_EQ(status("GET /health HTTP/1.1\r\nHost: h\r\nX: " + std::string(10'000, 'a') + "\r\n\r\n"), 431);
  EXPECT_EQ(status("GET /" + std::string(10'000, 'a') + " HTTP/1.1\r\nHost: h\r\n\r\n"), 431);
  EXPECT_EQ(status("GET http://h/health HTTP/1.1\r\nHost: h\r\n\r\n"), 200);
  EXPECT_EQ(status(std::string("\0\0\0\0\r\n\r\n", 8)), 400);
}

TEST(BadInput, SlowClientsAreDropped) {
  FakeServer fake("x", [](ServerOptions& o) {
    o.header_timeout = std::chrono::milliseconds(150);
    o.body_timeout = std::chrono::milliseconds(150);
    o.idle_timeout = std::chrono::milliseconds(150);
  });
  HttpClient header(fake.server->port());
  header.send("GET /health HT");
  EXPECT_EQ(header.read_answer().status, 408);
  EXPECT_TRUE(header.closed_by_server());

  HttpClient body(fake.server->port());
  body.send("POST /tokenize HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n{");
  EXPECT_EQ(body.read_answer().status, 408);
  EXPECT_TRUE(body.closed_by_server());

  HttpClient silent(fake.server->port());
  EXPECT_TRUE(silent.closed_by_server());

  // A byte now and then does not buy more time.
  HttpClient dripping(fake.server->port());
  bool open = true;
  for (int i = 0; open && i < 200; ++i) {
    open = dripping.send("G");
    ::usleep(20'000);
  }
  EXPECT_FALSE(open);
}

TEST(BadInput, HalfRequestsAndHalfClosedConnections) {
  FakeServer fake("fine", {}, std::chrono::microseconds(20'000));
  HttpClient cut(fake.server->port());
  cut.send("POST /tokenize HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n{");
  cut.finish_sending();
  EXPECT_TRUE(cut.closed_by_server());

  // A client that has said all may close its side and still read the answer.
  for (const char* more : {"{}", R"({"stream":true})"}) {
    HttpClient half(fake.server->port());
    half.send(HttpClient::request("POST", kChat, hello_with(more)));
    half.finish_sending();
    const HttpAnswer answer = half.read_answer();
    EXPECT_EQ(answer.status, 200);
    EXPECT_TRUE(answer.complete);
    EXPECT_THAT(answer.body, HasSubstr("\"finish_reason\":\"stop\""));
  }
  EXPECT_EQ(fake.engine.stats().requests_cancelled, 0U);
}

TEST(BadInput, ExpectContinueAndPipelining) {
  FakeServer fake("fine");
  HttpClient careful(fake.server->port());
  careful.send("POST " + std::string(kChat) + " HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: " +
               std::to_string(kHello.size()) + "\r\n\r\n");
  EXPECT_TRUE(careful.receive_until("100 Continue\r\n\r\n"));
  careful.send(kHello);
  EXPECT_EQ(careful.read_answer().status, 200);

  HttpClient eager(fake.server->port());
  eager.send(HttpClient::request("POST", kChat, hello_with(R"({"stream":true})")) +
             HttpClient::request("GET", "/version") + HttpClient::request("GET", "/nowhere") +
             HttpClient::request("GET", "/health"));
  EXPECT_THAT(eager.read_answer().body, HasSubstr("[DONE]"));
  EXPECT_THAT(eager.read_answer().body, HasSubstr("1.2.3"));
  EXPECT_EQ(eager.read_answer().status, 404);
  EXPECT_EQ(eager.read_answer().status, 200);
}

}  // namespace
}  // namespace sterling::server
