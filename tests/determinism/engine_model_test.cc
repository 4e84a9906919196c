// Same request, same bits, through the engine: token ids and logprobs of a request are those it gets alone, whatever runs beside it,
// however its prompt is cut, with one thread or two, on every kernel tier, with a pool so small that sequences are preempted.
#include <bit>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "engine/engine.h"
#include "formats/checkpoint.h"
#include "kernels/dispatch.h"
#include "model/model.h"
#include "platform/thread_pool.h"

namespace sterling {
namespace {

struct Answer {
  std::vector<std::int32_t> tokens;
  std::vector<std::uint32_t> logprob_bits;  // drawn token and the best ones, in order
  engine::FinishReason finish = engine::FinishReason::kNone;

  friend bool operator==(const Answer&, const Answer&) = default;
};

class Collector final : public engine::EventSink {
 public:
  void on_event(const engine::TokenEvent& event) override {
    const std::lock_guard lock(mutex_);
    if (event.has_token) {
      answer_.tokens.push_back(event.token);
      answer_.logprob_bits.push_back(std::bit_cast<std::uint32_t>(event.logprob));
      for (const engine::TokenLogprob& top : event.top) {
        answer_.logprob_bits.push_back(static_cast<std::uint32_t>(top.token));
        answer_.logprob_bits.push_back(std::bit_cast<std::uint32_t>(top.logprob));
      }
    }
    if (event.finish == engine::FinishReason::kNone) return;
    answer_.finish = event.finish;
    done_.notify_all();
  }
  Answer wait() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return answer_.finish != engine::FinishReason::kNone; });
    return answer_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  Answer answer_;
};

struct Setup {
  const kernels::KernelTable* table = nullptr;
  std::size_t threads = 1;
  std::int32_t batch_tokens = 512;  // the chunk size of prefill
  std::int32_t kv_blocks = 256;
};

std::vector<Answer> run(const std::string& family, const Setup& setup,
                        const std::vector<engine::TokenRequest>& requests, bool together) {
  auto checkpoint =
      formats::Checkpoint::open(std::string(STERLING_SOURCE_DIR) + "/tests/golden/" + family + "/checkpoint");
  EXPECT_TRUE(checkpoint.ok());
  platform::ThreadPool::Options pool_options;
  pool_options.threads = setup.threads;
  auto pool = std::move(*platform::ThreadPool::create(pool_options));
  auto backend = backend::make_cpu_backend({backend::Compute::kBf16, setup.table, pool.get()});
  auto model = std::move(*model::Model::load(*checkpoint, *backend, {}));
  backend::PoolOptions pools;
  pools.kv_blocks = setup.kv_blocks;
  pools.state_slots = 8;
  pools.max_batch_tokens = std::max(setup.batch_tokens, 8);
  pools.max_batch_slices = 8;
  pools.max_sequence_tokens = 160;
  EXPECT_TRUE(model->configure(pools).ok());
  engine::EngineOptions options;
  options.max_running = 8;
  options.max_batch_tokens = setup.batch_tokens;
  const auto engine = engine::make_engine(*model, options);
  std::vector<std::shared_ptr<Collector>> collectors;
  std::vector<Answer> answers;
  for (const engine::TokenRequest& request : requests) {
    collectors.push_back(std::make_shared<Collector>());
    const auto id = engine->submit(request, collectors.back());
    if (!id) {
      ADD_FAILURE() << id.error().message;
      return {};
    }
    if (!together) answers.push_back(collectors.back()->wait());
  }
  if (together) {
    for (const auto& collector : collectors) answers.push_back(collector->wait());
  }
  return answers;
}

std::vector<engine::TokenRequest> make_requests() {
  std::mt19937 generator(7);
  std::vector<engine::TokenRequest> requests;
  for (int i = 0; i < 8; ++i) {
    engine::TokenRequest request;
    const auto length = 1 + i * 15;  // 1 … 106: below, at and across block edges
    for (int t = 0; t < length; ++t) request.prompt.push_back(static_cast<std::int32_t>(generator() % 190));
    request.max_tokens = 8 + i * 2;
    request.top_logprobs = 3;
    request.sampling.temperature = i % 3 == 0 ? 0.0F : 0.8F;
    request.sampling.top_k = i % 2 == 0 ? 0 : 20;
    request.sampling.top_p = i % 4 == 1 ? 0.9F : 1.0F;
    request.sampling.repetition_penalty = i == 5 ? 1.2F : 1.0F;
    request.sampling.seed = static_cast<std::uint64_t>(1000 + i);
    requests.push_back(std::move(request));
  }
  return requests;
}

class EngineOverModel : public testing::TestWithParam<const char*> {};

TEST_P(EngineOverModel, SameIdsAndLogprobBitsWhateverTheCompany) {
  const std::vector<engine::TokenRequest> requests = make_requests();
  const std::vector<Answer> alone = run(GetParam(), {*kernels::select("scalar"), 1, 512, 256}, requests, false);
  for (const Answer& answer : alone) ASSERT_EQ(answer.finish, engine::FinishReason::kLength);
  for (const kernels::TierState& tier : kernels::inspect_tiers()) {
    if (!tier.usable) continue;
    for (const std::size_t threads : {std::size_t{1}, std::size_t{2}}) {
      for (const std::int32_t chunk : {8, 64, 512}) {
        SCOPED_TRACE(std::string(tier.tier.name) + ", " + std::to_string(threads) + " threads, steps of " +
                     std::to_string(chunk));
        EXPECT_EQ(alone, run(GetParam(), {tier.tier.table(), threads, chunk, 256}, requests, true));
      }
    }
    // 12 blocks hold 192 tokens: not even two of the longer requests.
    SCOPED_TRACE(std::string(tier.tier.name) + ", a pool that forces preemption");
    EXPECT_EQ(alone, run(GetParam(), {tier.tier.table(), 2, 64, 12}, requests, true));
  }
}

INSTANTIATE_TEST_SUITE_P(Families, EngineOverModel, testing::Values("llama", "qwen3_5"));

}  // namespace
}  // namespace sterling
