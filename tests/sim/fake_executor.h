// A model that can't be fooled: it keeps the tokens themselves in its KV blocks and a running hash in its state slots, and its
// logits are a hash of the history that it reads back from there. A wrong block table, a slot of somebody else, a chunk that
// starts at the wrong position or a block freed too early changes the logits, or is reported at once.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "model/executor.h"

namespace sterling::sim {

// The logits after `history`: values in steps of 1/4 between -4 and 4, so that ties are common.
void fake_logits(std::span<const std::int32_t> history, std::span<float> row);

class FakeExecutor final : public model::Executor {
 public:
  explicit FakeExecutor(const model::ExecutorLimits& limits);

  const model::ExecutorLimits& limits() const override { return limits_; }
  // A broken promise of the engine comes back as an error, which fails the requests and so the test; it is kept in complaint().
  Status forward(const BatchView& batch, std::span<float> logits) override;

  const std::string& complaint() const { return complaint_; }
  std::int64_t steps() const { return steps_; }
  std::int64_t largest_step() const { return largest_step_; }

  // Faults to inject: the step with this number (from 0) fails; this token in a history makes its row NaN.
  std::optional<std::int64_t> failing_step;
  std::optional<std::int32_t> poison_token;

 private:
  struct Slot {
    std::uint64_t hash = 0;
    std::int32_t position = 0;
  };
  Status check(const BatchView& batch, std::size_t logit_values);
  Status check_slice(const SequenceSlice& slice);
  Status run_slice(const SequenceSlice& slice, float*& out);
  Error complain(std::string what);

  model::ExecutorLimits limits_;
  std::vector<std::int32_t> cells_;  // [kv_blocks, block_tokens]; -1: never written
  std::vector<Slot> slots_;
  std::vector<std::int32_t> writers_;  // by block: which slice of this step uses it
  std::string complaint_;
  std::int64_t steps_ = 0;
  std::int64_t largest_step_ = 0;
};

// What the request gets alone, without engine, batch, blocks or chunks: history, logits, draw, again.
struct Answer {
  std::vector<std::int32_t> tokens;
  std::vector<float> logprobs;
  std::vector<std::vector<engine::TokenLogprob>> tops;
  std::vector<float> prompt_logprobs;
  engine::FinishReason finish = engine::FinishReason::kNone;
};
Answer answer_alone(const engine::TokenRequest& request, std::int32_t vocab_size);

// Equality to the bit.
bool same_bits(std::span<const float> a, std::span<const float> b);
bool same_tops(std::span<const engine::TokenLogprob> a, std::span<const engine::TokenLogprob> b);

}  // namespace sterling::sim
