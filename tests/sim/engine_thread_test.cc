// The engine with its thread, over the fake model: many submitters at once, cancellation, failure, draining, destruction. Run under
// ThreadSanitizer too.
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "tests/sim/fake_executor.h"

namespace sterling::sim {
namespace {

using engine::EngineOptions;
using engine::FinishReason;
using engine::TokenEvent;
using engine::TokenRequest;

// Collects the events of one request; wait() returns after the last.
class Collector final : public engine::EventSink {
 public:
  void on_event(const TokenEvent& event) override {
    const std::lock_guard lock(mutex_);
    if (finish_ != FinishReason::kNone) ++events_after_end_;
    if (event.has_token) tokens_.push_back(event.token);
    finish_ = event.finish;
    if (event.error.has_value()) error_ = event.error;
    changed_.notify_all();
  }
  FinishReason wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return finish_ != FinishReason::kNone; });
    return finish_;
  }
  void wait_for_tokens(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return tokens_.size() >= count || finish_ != FinishReason::kNone; });
  }
  std::vector<std::int32_t> tokens() const {
    const std::lock_guard lock(mutex_);
    return tokens_;
  }
  FinishReason finish() const {
    const std::lock_guard lock(mutex_);
    return finish_;
  }
  std::optional<Error> error() const {
    const std::lock_guard lock(mutex_);
    return error_;
  }
  int events_after_end() const {
    const std::lock_guard lock(mutex_);
    return events_after_end_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::int32_t> tokens_;
  FinishReason finish_ = FinishReason::kNone;
  std::optional<Error> error_;
  int events_after_end_ = 0;
};

model::ExecutorLimits small_model() {
  return {.vocab_size = 60,
          .max_sequence_tokens = 200,
          .block_tokens = 4,
          .kv_blocks = 60,
          .state_slots = 6,
          .max_batch_tokens = 16,
          .max_batch_slices = 6,
          .max_logit_rows = 0};
}

TokenRequest small_request(std::int32_t first_token, std::int32_t max_tokens) {
  TokenRequest request;
  request.prompt = {first_token % 60, 2, 3};
  request.max_tokens = max_tokens;
  request.sampling.seed = static_cast<std::uint64_t>(first_token);
  return request;
}

TEST(EngineThread, ManySubmittersGetTheirOwnAnswers) {
  FakeExecutor executor(small_model());
  const auto engine = engine::make_engine(executor, EngineOptions{});
  constexpr int kThreads = 4;
  constexpr int kEach = 25;
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        const TokenRequest request = small_request(t * kEach + i, 1 + i % 40);
        const auto collector = std::make_shared<Collector>();
        if (!engine->submit(request, collector).ok()) ++wrong;
        if (collector->wait() != FinishReason::kLength) ++wrong;
        if (collector->tokens() != answer_alone(request, 60).tokens) ++wrong;
        (void)engine->stats();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(executor.complaint(), "");
  const engine::EngineStats stats = engine->stats();
  EXPECT_EQ(stats.requests_finished, 100u);
  EXPECT_EQ(stats.kv_blocks_used, 0);
  EXPECT_EQ(stats.state_slots_used, 0);
  while (!engine->idle()) std::this_thread::yield();
}

TEST(EngineThread, CancelEndsARequestAndFreesItsMemory) {
  FakeExecutor executor(small_model());
  const auto engine = engine::make_engine(executor, EngineOptions{});
  const auto doomed = std::make_shared<Collector>();
  const auto other = std::make_shared<Collector>();
  const TokenRequest other_request = small_request(5, 150);
  const auto id = engine->submit(small_request(4, 190), doomed);
  ASSERT_TRUE(id.ok());
  ASSERT_TRUE(engine->submit(other_request, other).ok());
  doomed->wait_for_tokens(3);
  engine->cancel(*id);
  engine->cancel(*id);     // once more
  engine->cancel(987654);  // unknown
  const FinishReason finish = doomed->wait();
  EXPECT_TRUE(finish == FinishReason::kCancelled || finish == FinishReason::kLength);  // it may have been quicker
  EXPECT_EQ(other->wait(), FinishReason::kLength);
  EXPECT_EQ(other->tokens(), answer_alone(other_request, 60).tokens);
  engine->cancel(*id);  // long finished
  EXPECT_EQ(engine->stats().kv_blocks_used, 0);
  EXPECT_EQ(doomed->events_after_end(), 0);
}

TEST(EngineThread, AFailingStepFailsItsRequestsAndTheEngineGoesOn) {
  FakeExecutor executor(small_model());
  executor.failing_step = 5;
  const auto engine = engine::make_engine(executor, EngineOptions{});
  const auto first = std::make_shared<Collector>();
  ASSERT_TRUE(engine->submit(small_request(1, 50), first).ok());
  EXPECT_EQ(first->wait(), FinishReason::kError);
  ASSERT_TRUE(first->error().has_value());
  EXPECT_EQ(first->error()->code, ErrorCode::kIo);
  EXPECT_EQ(first->error()->message, "the fake device failed");
  const TokenRequest request = small_request(2, 50);
  const auto second = std::make_shared<Collector>();
  ASSERT_TRUE(engine->submit(request, second).ok());
  EXPECT_EQ(second->wait(), FinishReason::kLength);
  EXPECT_EQ(second->tokens(), answer_alone(request, 60).tokens);
  EXPECT_EQ(engine->stats().requests_failed, 1u);
  EXPECT_EQ(engine->stats().kv_blocks_used, 0);
}

TEST(EngineThread, LogitsThatAreNotNumbersFailThatRequestAlone) {
  FakeExecutor executor(small_model());
  executor.poison_token = 59;
  const auto engine = engine::make_engine(executor, EngineOptions{});
  TokenRequest healthy = small_request(1, 60);
  healthy.sampling.logit_bias = {{59, -1000.0F}};  // never drawn, so never in its history
  TokenRequest sick = small_request(2, 60);
  sick.prompt.push_back(59);
  TokenRequest sick_prompt = small_request(3, 60);  // met while the prompt's logprobs are taken
  sick_prompt.prompt = {59, 1, 2};
  sick_prompt.prompt_logprobs = true;
  const auto good = std::make_shared<Collector>();
  const auto bad = std::make_shared<Collector>();
  const auto bad_prompt = std::make_shared<Collector>();
  ASSERT_TRUE(engine->submit(healthy, good).ok());
  ASSERT_TRUE(engine->submit(sick, bad).ok());
  ASSERT_TRUE(engine->submit(sick_prompt, bad_prompt).ok());
  EXPECT_EQ(good->wait(), FinishReason::kLength);
  EXPECT_EQ(good->tokens(), answer_alone(healthy, 60).tokens);
  for (const auto& collector : {bad, bad_prompt}) {
    EXPECT_EQ(collector->wait(), FinishReason::kError);
    EXPECT_TRUE(collector->tokens().empty());
    EXPECT_EQ(collector->error()->code, ErrorCode::kInternal);
    EXPECT_NE(collector->error()->message.find("nan at token id 30"), std::string::npos) << collector->error()->message;
  }
  EXPECT_NE(bad->error()->message.find("position 4"), std::string::npos) << bad->error()->message;
  EXPECT_NE(bad_prompt->error()->message.find("position 1"), std::string::npos) << bad_prompt->error()->message;
}

TEST(EngineThread, DrainFinishesWhatWasAcceptedAndRefusesMore) {
  FakeExecutor executor(small_model());
  const auto engine = engine::make_engine(executor, EngineOptions{});
  const auto collector = std::make_shared<Collector>();
  ASSERT_TRUE(engine->submit(small_request(1, 100), collector).ok());
  engine->drain();
  const auto refused = engine->submit(small_request(2, 3), std::make_shared<Collector>());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(collector->wait(), FinishReason::kLength);
  while (!engine->idle()) std::this_thread::yield();
}

// A gate that holds the engine thread inside its first step.
class GatedExecutor final : public model::Executor {
 public:
  explicit GatedExecutor(FakeExecutor& inner) : inner_(inner) {}
  const model::ExecutorLimits& limits() const override { return inner_.limits(); }
  Status forward(const BatchView& batch, std::span<float> logits) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return open_; });
    return inner_.forward(batch, logits);
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  FakeExecutor& inner_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

TEST(EngineThread, AFullQueueRefusesAndRecovers) {
  FakeExecutor fake(small_model());
  GatedExecutor executor(fake);
  EngineOptions options;
  options.max_running = 2;
  options.max_queue = 3;
  const auto engine = engine::make_engine(executor, options);
  std::vector<std::shared_ptr<Collector>> accepted;
  for (int i = 0; i < 5; ++i) {
    accepted.push_back(std::make_shared<Collector>());
    ASSERT_TRUE(engine->submit(small_request(i, 3), accepted.back()).ok()) << i;
  }
  const auto refused = engine->submit(small_request(9, 3), std::make_shared<Collector>());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(engine->stats().requests_submitted, 5u);
  executor.open();
  for (const auto& collector : accepted) EXPECT_EQ(collector->wait(), FinishReason::kLength);
  while (!engine->idle()) std::this_thread::yield();
  const auto again = std::make_shared<Collector>();
  ASSERT_TRUE(engine->submit(small_request(9, 3), again).ok());
  EXPECT_EQ(again->wait(), FinishReason::kLength);
}

TEST(EngineThread, DestructionCancelsAllThatLives) {
  FakeExecutor fake(small_model());
  GatedExecutor executor(fake);
  std::vector<std::shared_ptr<Collector>> collectors;
  {
    const auto engine = engine::make_engine(executor, EngineOptions{});
    for (int i = 0; i < 20; ++i) {
      collectors.push_back(std::make_shared<Collector>());
      ASSERT_TRUE(engine->submit(small_request(i, 190), collectors.back()).ok());
    }
    executor.open();
  }
  int cancelled = 0;
  for (const auto& collector : collectors) {
    EXPECT_NE(collector->finish(), FinishReason::kNone);
    EXPECT_EQ(collector->events_after_end(), 0);
    EXPECT_EQ(collector.use_count(), 1) << "the engine kept a sink";
    if (collector->finish() == FinishReason::kCancelled) ++cancelled;
  }
  EXPECT_GT(cancelled, 0);
}

TEST(EngineThread, AnIdleEngineStops) {
  FakeExecutor executor(small_model());
  { const auto engine = engine::make_engine(executor, EngineOptions{}); }
  EXPECT_EQ(executor.steps(), 0);
}

}  // namespace
}  // namespace sterling::sim
