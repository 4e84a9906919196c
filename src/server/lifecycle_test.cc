// Clients that leave, clients that do not read, and the server's own stop.
#include "server/lifecycle.h"

#include <future>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/testing/fake_server.h"

namespace sterling::server {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using testing::error_field;
using testing::events_of;
using testing::FakeServer;
using ::testing::HasSubstr;
using testing::hello_with;
using testing::HttpAnswer;
using testing::HttpClient;
using testing::kHello;

constexpr const char* kChat = "/v1/chat/completions";
const std::string kLong(3000, 'a');

TEST(Leaving, AStreamsClientThatLeavesCancelsItsRequests) {
  FakeServer fake(kLong, {}, microseconds(2000));
  HttpClient client(fake.server->port());
  client.send(HttpClient::request("POST", kChat, hello_with(R"({"stream":true,"n":3})")));
  ASSERT_TRUE(client.receive_until("\"content\":\"a\""));
  client.close();
  EXPECT_TRUE(fake.engine.wait_cancelled(3));
  EXPECT_LT(fake.engine.stats().generated_tokens, 9000U);
  EXPECT_EQ(fake.call("GET", "/health").status, 200);
}

TEST(Leaving, AWholeAnswersClientThatLeavesCancelsItsRequest) {
  FakeServer fake(kLong, {}, microseconds(2000));
  HttpClient client(fake.server->port());
  client.send(HttpClient::request("POST", kChat, kHello));
  while (fake.engine.stats().generated_tokens < 5) std::this_thread::sleep_for(milliseconds(1));
  client.close();
  EXPECT_TRUE(fake.engine.wait_cancelled(1));
  EXPECT_LT(fake.engine.stats().generated_tokens, 3000U);
}

TEST(Leaving, AClientThatLeavesBeforeTheFirstTokenIsNoticed) {
  FakeServer fake(kLong, {}, {}, /*paused=*/true);
  for (const char* more : {"{}", R"({"stream":true})"}) {
    HttpClient client(fake.server->port());
    client.send(HttpClient::request("POST", kChat, hello_with(more)));
    const auto before = fake.engine.stats().requests_cancelled;
    while (fake.engine.idle()) std::this_thread::sleep_for(milliseconds(1));
    client.close();
    EXPECT_TRUE(fake.engine.wait_cancelled(before + 1)) << more;
  }
}

TEST(Leaving, AClientThatDoesNotReadHoldsNobodyUp) {
  FakeServer fake(
      kLong, [](ServerOptions& o) { o.write_timeout = milliseconds(300); }, microseconds(1000), false,
      [](serving::ServiceOptions& o) { o.max_unread_events = 100; });
  HttpClient stuck(fake.server->port(), 4096);
  // Logprobs make the stream larger than what the kernel buffers.
  stuck.send(
      HttpClient::request("POST", kChat, hello_with(R"({"stream":true,"n":8,"logprobs":true,"top_logprobs":20})")));
  EXPECT_TRUE(fake.engine.wait_cancelled(1));
  EXPECT_EQ(fake.chat().status, 200);
  while (stuck.receive()) {
  }
  EXPECT_FALSE(stuck.receive_until("[DONE]"));
}

TEST(Leaving, PingsKeepASilentStreamAlive) {
  FakeServer fake(
      "x", [](ServerOptions& o) { o.ping_interval = milliseconds(30); }, {}, /*paused=*/true);
  HttpClient client(fake.server->port());
  client.send(HttpClient::request("POST", kChat, hello_with(R"({"stream":true})")));
  ASSERT_TRUE(client.receive_until(": still here\n\n"));
  fake.engine.resume();
  EXPECT_THAT(client.read_answer().body, HasSubstr("[DONE]"));
}

TEST(Limits, OneConnectionTooManyIsTurnedAway) {
  FakeServer fake("x", [](ServerOptions& o) { o.max_connections = 2; });
  HttpClient one(fake.server->port());
  HttpClient two(fake.server->port());
  EXPECT_EQ(one.call("GET", "/health").status, 200);
  EXPECT_EQ(two.call("GET", "/health").status, 200);
  HttpClient three(fake.server->port());
  const HttpAnswer refused = three.call("GET", "/health");
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.headers.at("retry-after"), "1");
  EXPECT_EQ(error_field(refused, "code"), "too_many_connections");
  one.close();
  int status = 0;
  for (int i = 0; i < 500 && status != 200; ++i) {
    status = fake.call("GET", "/health").status;
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_EQ(status, 200);
}

TEST(Stop, LetsRunningAnswersFinishAndRefusesNewOnes) {
  FakeServer fake(std::string(100, 'a'), {}, microseconds(3000));
  HttpClient client(fake.server->port());
  client.send(HttpClient::request("POST", kChat, hello_with(R"({"stream":true})")));
  ASSERT_TRUE(client.receive_until("\"content\":\"a\""));
  auto stopped = std::async(std::launch::async, [&] { return fake.server->stop(milliseconds(20'000)); });
  HttpAnswer ready;
  for (int i = 0; i < 1000 && ready.status != 503; ++i) ready = fake.call("GET", "/ready");
  EXPECT_EQ(ready.status, 503);
  EXPECT_THAT(ready.body, HasSubstr("draining"));
  const HttpAnswer refused = fake.chat();
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(error_field(refused, "code"), "draining");
  const HttpAnswer answer = client.read_answer();
  EXPECT_TRUE(answer.complete);
  EXPECT_THAT(answer.body, HasSubstr("[DONE]"));
  EXPECT_EQ(stopped.get(), 0U);
  EXPECT_FALSE(HttpClient(fake.server->port()).connected());
}

TEST(Stop, CutsOffWhatDoesNotFinish) {
  FakeServer fake(kLong, {}, microseconds(5000));
  HttpClient stream(fake.server->port());
  stream.send(HttpClient::request("POST", kChat, hello_with(R"({"stream":true})")));
  HttpClient whole(fake.server->port());
  whole.send(HttpClient::request("POST", kChat, kHello));
  ASSERT_TRUE(stream.receive_until("\"content\":\"a\""));
  while (fake.engine.stats().requests_submitted < 2) std::this_thread::sleep_for(milliseconds(1));
  HttpClient idle(fake.server->port());
  EXPECT_EQ(idle.call("GET", "/health").status, 200);
  EXPECT_EQ(fake.server->stop(milliseconds(50)), 2U);
  bool done = true;
  const auto events = events_of(stream.read_answer().body, &done);
  EXPECT_FALSE(done);
  EXPECT_EQ(events.back().at("error").at("code"), "server_stopping");
  EXPECT_EQ(whole.read_answer().status, 503);
  EXPECT_TRUE(idle.closed_by_server());
  EXPECT_TRUE(fake.engine.wait_cancelled(2));
}

TEST(Stop, ASecondStopShortensTheFirst) {
  FakeServer fake(kLong, {}, microseconds(5000));
  HttpClient client(fake.server->port());
  client.send(HttpClient::request("POST", kChat, hello_with(R"({"stream":true})")));
  ASSERT_TRUE(client.receive_until("\"content\":\"a\""));
  auto first = std::async(std::launch::async, [&] { return fake.server->stop(std::chrono::hours(1)); });
  while (fake.call("GET", "/ready").status != 503) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(fake.server->stop(milliseconds(0)), 1U);
  EXPECT_EQ(first.get(), 1U);
}

TEST(Lifecycle, ABusyEngineWithoutStepsIsStalled) {
  Lifecycle lifecycle;
  const auto start = std::chrono::steady_clock::time_point(std::chrono::hours(1));
  const auto at = [&](int seconds) { return start + std::chrono::seconds(seconds); };
  lifecycle.note_engine(true, 5, at(0));
  EXPECT_EQ(lifecycle.engine_stalled(at(100)).count(), 0);
  lifecycle.note_engine(false, 5, at(101));  // work came a moment ago
  EXPECT_EQ(lifecycle.engine_stalled(at(101)).count(), 0);
  lifecycle.note_engine(false, 5, at(110));
  EXPECT_EQ(lifecycle.engine_stalled(at(111)), std::chrono::seconds(10));
  lifecycle.note_engine(false, 6, at(112));
  EXPECT_EQ(lifecycle.engine_stalled(at(112)).count(), 0);
}

TEST(Load, ManyStreamsAtOnce) {
  FakeServer fake(serving::testing::FakeEngineOptions{
      .script = [](const engine::TokenRequest&,
                   std::size_t at) { return serving::testing::scripted("hello world", at); },
      .max_queue = 10'000});
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 100; ++i) {
    clients.push_back(std::make_unique<HttpClient>(fake.server->port()));
    clients.back()->send(HttpClient::request("POST", kChat, hello_with(R"({"stream":true})")));
  }
  for (auto& client : clients) EXPECT_THAT(client->read_answer().body, HasSubstr("[DONE]"));
}

}  // namespace
}  // namespace sterling::server
