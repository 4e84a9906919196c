// Thousands of random traces through the step loop, without threads: arrivals, cancellations, pools too small for everybody, budgets
// from one token up. Every answer must be the one that the request gets alone, to the bit of its logprobs.
#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/request_check.h"
#include "engine/step_loop.h"
#include "tests/sim/fake_executor.h"

namespace sterling::sim {
namespace {

using engine::FinishReason;
using engine::RequestId;
using engine::Sequence;
using engine::SequencePhase;
using engine::StepLoop;
using engine::TokenEvent;
using engine::TokenRequest;

class NullSink final : public engine::EventSink {
 public:
  void on_event(const TokenEvent&) override {}
};

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : generator_(seed) {}
  // In [low, high]; by remainder, so that a trace is the same with every C++ library.
  std::int32_t number(std::int32_t low, std::int32_t high) {
    return low + static_cast<std::int32_t>(generator_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool one_in(std::int32_t n) { return number(1, n) == 1; }
  std::uint64_t bits() { return generator_(); }

 private:
  std::mt19937_64 generator_;
};

struct Trace {
  model::ExecutorLimits limits;
  engine::EngineOptions options;
  struct Arrival {
    std::int32_t step = 0;
    TokenRequest request;
    std::optional<std::int32_t> cancel_step;
  };
  std::vector<Arrival> arrivals;  // by step
};

TokenRequest random_request(Dice& dice, const model::ExecutorLimits& limits) {
  TokenRequest request;
  const std::int32_t room = std::min(limits.max_sequence_tokens - 1, limits.kv_blocks * limits.block_tokens);
  const std::int32_t prompt = dice.number(1, dice.one_in(3) ? room : std::min(room, 12));
  for (std::int32_t i = 0; i < prompt; ++i) request.prompt.push_back(dice.number(0, limits.vocab_size - 1));
  request.max_tokens = dice.number(1, std::min(room - prompt + 1, 30));
  request.min_tokens = dice.one_in(3) ? dice.number(0, request.max_tokens) : 0;
  for (std::int32_t stops = dice.number(0, 3); stops > 0; --stops) {
    request.stop_token_ids.push_back(dice.number(0, limits.vocab_size - 1));
  }
  request.top_logprobs = dice.one_in(2) ? -1 : dice.number(0, 5);
  request.prompt_logprobs = dice.one_in(4);
  engine::SamplingParams& sampling = request.sampling;
  sampling.temperature = dice.one_in(3) ? 0.0F : static_cast<float>(dice.number(1, 20)) / 10.0F;
  if (dice.one_in(3)) sampling.top_k = dice.number(1, 10);
  if (dice.one_in(3)) sampling.top_p = 0.8F;
  if (dice.one_in(4)) sampling.min_p = 0.05F;
  if (dice.one_in(4)) sampling.repetition_penalty = 1.2F;
  if (dice.one_in(4)) sampling.frequency_penalty = 0.5F;
  if (dice.one_in(4)) sampling.presence_penalty = 0.3F;
  if (dice.one_in(4)) sampling.logit_bias = {{dice.number(0, limits.vocab_size - 1), 2.5F}};
  sampling.seed = dice.bits();
  sampling.stream = dice.bits() % 3;
  return request;
}

Trace random_trace(std::uint64_t seed) {
  Dice dice(seed);
  Trace trace;
  trace.limits.vocab_size = dice.number(5, 90);
  trace.limits.block_tokens = dice.number(1, 8);
  trace.limits.kv_blocks = dice.one_in(2) ? dice.number(1, 12) : dice.number(8, 60);
  trace.limits.max_sequence_tokens = dice.number(4, 100);
  trace.limits.max_batch_tokens = dice.number(1, 64);
  trace.limits.max_batch_slices = dice.number(1, 16);
  trace.limits.max_logit_rows = dice.one_in(2) ? 0 : dice.number(1, 20);
  trace.limits.state_slots = dice.one_in(2) ? 0 : dice.number(1, 16);
  trace.options.max_running = dice.number(1, 16);
  trace.options.max_batch_tokens = dice.number(1, 64);
  std::int32_t step = 0;
  for (std::int32_t i = dice.number(1, 25); i > 0; --i) {
    step += dice.one_in(3) ? dice.number(1, 12) : 0;
    Trace::Arrival arrival{step, random_request(dice, trace.limits), std::nullopt};
    if (dice.one_in(6)) arrival.cancel_step = step + dice.number(0, 30);
    trace.arrivals.push_back(std::move(arrival));
  }
  return trace;
}

// What one request has received so far.
struct Received {
  Answer answer;
  std::int32_t events = 0;
  std::optional<std::int32_t> first_step;
  bool cancelled = false;
};

class Simulation {
 public:
  explicit Simulation(const Trace& trace) : trace_(trace), executor_(trace.limits), loop_(executor_, trace.options) {}

  void run() {
    const auto sink = std::make_shared<NullSink>();
    std::size_t next = 0;
    for (std::int32_t step = 0; next < trace_.arrivals.size() || loop_.has_work(); ++step) {
      ASSERT_LT(step, 100000) << "the loop does not come to an end";
      std::vector<StepLoop::Delivery> deliveries;
      for (; next < trace_.arrivals.size() && trace_.arrivals[next].step <= step; ++next) {
        const TokenRequest& request = trace_.arrivals[next].request;
        ASSERT_TRUE(engine::check_request(request, trace_.limits).ok());
        loop_.add(next + 1, request, sink);
      }
      for (std::size_t i = 0; i < next; ++i) {
        if (trace_.arrivals[i].cancel_step == step) loop_.cancel(i + 1, deliveries);
      }
      const std::map<RequestId, std::int32_t> decoding = decoding_now();
      loop_.step(deliveries);
      ASSERT_EQ(executor_.complaint(), "");
      ASSERT_NO_FATAL_FAILURE(receive(deliveries, step));
      ASSERT_NO_FATAL_FAILURE(check_step(decoding));
    }
    check_end();
  }

  std::uint64_t preemptions() const { return loop_.stats().preemptions; }
  std::int64_t steps() const { return executor_.steps(); }

 private:
  // Those in decode before a step, with their size.
  std::map<RequestId, std::int32_t> decoding_now() const {
    std::map<RequestId, std::int32_t> result;
    for (const Sequence* sequence : loop_.scheduler().running()) {
      if (sequence->phase() == SequencePhase::kDecode) result[sequence->id()] = sequence->size();
    }
    return result;
  }

  void receive(const std::vector<StepLoop::Delivery>& deliveries, std::int32_t step) {
    for (const StepLoop::Delivery& delivery : deliveries) {
      const TokenEvent& event = delivery.event;
      Received& got = received_[event.request];
      ASSERT_EQ(got.answer.finish, FinishReason::kNone) << "an event after the last one";
      ASSERT_FALSE(event.error.has_value()) << event.error->message;
      if (event.has_token) {
        if (!got.first_step.has_value()) {
          got.first_step = step;
          // Fairness: whoever came first has its first token first.
          ASSERT_LT(last_first_, event.request) << "a younger request overtook";
          last_first_ = event.request;
        }
        if (got.events == 0) {
          got.answer.prompt_logprobs = event.prompt_logprobs;
        } else {
          ASSERT_TRUE(event.prompt_logprobs.empty());
        }
        got.answer.tokens.push_back(event.token);
        got.answer.logprobs.push_back(event.logprob);
        got.answer.tops.push_back(event.top);
      }
      ++got.events;
      got.answer.finish = event.finish;
    }
  }

  // Decode is never starved: each one that was decoding has one token more, unless it was preempted or has ended.
  void check_step(const std::map<RequestId, std::int32_t>& decoding) {
    const engine::Scheduler& scheduler = loop_.scheduler();
    std::int32_t held = 0;
    std::map<RequestId, const Sequence*> running;
    for (const Sequence* sequence : scheduler.running()) {
      running[sequence->id()] = sequence;
      held += static_cast<std::int32_t>(sequence->block_table.size());
    }
    ASSERT_EQ(held, scheduler.blocks().used()) << "a block leaked";
    ASSERT_EQ(trace_.limits.state_slots == 0 ? 0 : static_cast<std::int32_t>(running.size()), scheduler.slots().used());
    ASSERT_LE(static_cast<std::int32_t>(running.size()), trace_.options.max_running);
    bool first = true;
    for (const auto& [id, size] : decoding) {
      const bool is_oldest = std::exchange(first, false);
      if (received_[id].answer.finish != FinishReason::kNone) continue;
      const auto found = running.find(id);
      const bool was_preempted = found == running.end() || found->second->phase() == SequencePhase::kPrefill;
      ASSERT_FALSE(is_oldest && was_preempted) << "the oldest was preempted";
      if (!was_preempted) {
        ASSERT_EQ(found->second->size(), size + 1) << "a decoding sequence got no token";
      }
    }
  }

  void check_end() {
    ASSERT_LE(executor_.largest_step(), std::min(trace_.options.max_batch_tokens, trace_.limits.max_batch_tokens));
    const engine::EngineStats stats = loop_.stats();
    EXPECT_EQ(stats.kv_blocks_used, 0);
    EXPECT_EQ(stats.state_slots_used, 0);
    EXPECT_EQ(stats.running + stats.waiting, 0);
    std::uint64_t cancelled = 0;
    std::uint64_t generated = 0;
    for (std::size_t i = 0; i < trace_.arrivals.size(); ++i) {
      const TokenRequest& request = trace_.arrivals[i].request;
      const Answer expected = answer_alone(request, trace_.limits.vocab_size);
      const Answer& got = received_[i + 1].answer;
      generated += got.tokens.size();
      const std::size_t n = got.tokens.size();
      if (got.finish == FinishReason::kCancelled) {
        ++cancelled;
        ASSERT_TRUE(trace_.arrivals[i].cancel_step.has_value());
        ASSERT_LE(n, expected.tokens.size());
      } else {
        ASSERT_EQ(got.finish, expected.finish) << "request " << i + 1;
        ASSERT_EQ(n, expected.tokens.size()) << "request " << i + 1;
      }
      for (std::size_t t = 0; t < n; ++t) {
        ASSERT_EQ(got.tokens[t], expected.tokens[t]) << "request " << i + 1 << ", token " << t;
        ASSERT_TRUE(same_tops(got.tops[t], expected.tops[t])) << "request " << i + 1 << ", token " << t;
      }
      ASSERT_TRUE(same_bits(got.logprobs, std::span(expected.logprobs).first(n))) << "request " << i + 1;
      if (n > 0) {
        ASSERT_TRUE(same_bits(got.prompt_logprobs, expected.prompt_logprobs)) << "request " << i + 1;
      }
    }
    EXPECT_EQ(stats.requests_submitted, trace_.arrivals.size());
    EXPECT_EQ(stats.requests_cancelled, cancelled);
    EXPECT_EQ(stats.requests_failed, 0u);
    EXPECT_EQ(stats.requests_finished, trace_.arrivals.size() - cancelled);
    EXPECT_EQ(stats.generated_tokens, generated);
  }

  const Trace& trace_;
  FakeExecutor executor_;
  StepLoop loop_;
  std::map<RequestId, Received> received_;
  RequestId last_first_ = 0;
};

TEST(EngineSim, EveryAnswerIsTheOneGivenAlone) {
  std::uint64_t preempting_traces = 0;
  for (std::uint64_t seed = 1; seed <= 4000; ++seed) {
    SCOPED_TRACE("trace " + std::to_string(seed));
    const Trace trace = random_trace(seed);
    Simulation simulation(trace);
    simulation.run();
    if (testing::Test::HasFatalFailure()) return;
    if (simulation.preemptions() > 0) ++preempting_traces;
  }
  EXPECT_GT(preempting_traces, 200u) << "the traces no longer exercise preemption";
}

// Three long answers in a pool that holds little more than one: they must come out one after the other, by repeated preemption.
TEST(EngineSim, PoolOfOneWorstCaseServesMany) {
  Trace trace;
  trace.limits = {.vocab_size = 50,
                  .max_sequence_tokens = 64,
                  .block_tokens = 4,
                  .kv_blocks = 16,
                  .state_slots = 8,
                  .max_batch_tokens = 8,
                  .max_batch_slices = 8,
                  .max_logit_rows = 0};
  Dice dice(7);
  for (int i = 0; i < 6; ++i) {
    TokenRequest request = random_request(dice, trace.limits);
    request.prompt.assign(4, i);
    request.max_tokens = 60;
    request.min_tokens = 60;
    request.stop_token_ids.clear();
    trace.arrivals.push_back({0, request, std::nullopt});
  }
  Simulation simulation(trace);
  simulation.run();
  EXPECT_GT(simulation.preemptions(), 0u);
}

// A prompt much longer than the budget does not hold up the answers that are under way, and is itself not held up by them.
TEST(EngineSim, LongPromptsAndDecodersShareSteps) {
  Trace trace;
  trace.limits = {.vocab_size = 50,
                  .max_sequence_tokens = 1000,
                  .block_tokens = 16,
                  .kv_blocks = 200,
                  .state_slots = 0,
                  .max_batch_tokens = 8,
                  .max_batch_slices = 8,
                  .max_logit_rows = 0};
  trace.options.max_running = 8;
  trace.options.max_batch_tokens = 8;
  Dice dice(8);
  for (int i = 0; i < 7; ++i) {
    TokenRequest request = random_request(dice, trace.limits);
    request.prompt.assign(2, i);
    request.max_tokens = 200;
    request.min_tokens = 200;
    trace.arrivals.push_back({0, request, std::nullopt});
  }
  TokenRequest request = random_request(dice, trace.limits);
  request.prompt.assign(100, 3);  // one token per step while seven decode: done within their 200 steps
  request.max_tokens = 1;
  request.min_tokens = 0;
  trace.arrivals.push_back({10, request, std::nullopt});
  Simulation simulation(trace);
  simulation.run();
  EXPECT_LT(simulation.steps(), 215);
}

}  // namespace
}  // namespace sterling::sim
