// What the engine needs of a model: run a batch, give logits. The engine is tested with a fake one.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "tensor/batch_view.h"

namespace sterling::model {

// Fixed at load; the engine plans with these numbers and never exceeds them.
struct ExecutorLimits {
  std::int32_t vocab_size = 0;
  std::int32_t max_sequence_tokens = 0;  // longest sequence (prompt + output) the model and the pool allow
  std::int32_t block_tokens = 0;         // tokens of one KV block
  std::int32_t kv_blocks = 0;            // blocks in the pool; ids 0 … kv_blocks - 1
  std::int32_t state_slots = 0;          // recurrent-state slots, ids 0 … state_slots - 1; 0 where the model has none
  std::int32_t max_batch_tokens = 0;     // most tokens of one step
  std::int32_t max_batch_slices = 0;     // most sequences of one step
  std::int32_t max_logit_rows =
      0;  // most logit rows of one step; 0: max_batch_slices. Prompt logprobs want a row per token
};

// Not thread-safe: one engine thread drives it.
class Executor {
 public:
  virtual ~Executor() = default;
  virtual const ExecutorLimits& limits() const = 0;
  // Runs one step. `logits` receives one row of vocab_size FP32 values per wanted row, slice by slice in order; its size must be
  // total_logit_rows * vocab_size. The K/V and recurrent state of the new tokens are in place when it returns. The result for
  // a sequence does not depend, to the bit, on the other slices or on how its tokens were cut into slices.
  virtual Status forward(const BatchView& batch, std::span<float> logits) = 0;
};

}  // namespace sterling::model
