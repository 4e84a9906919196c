// One step's work for the model: runs of consecutive new tokens of several sequences, decode rows and prefill chunks alike.
// Plain borrowed data; the caller keeps it alive during the step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sterling {

// A run of new tokens of one sequence.
struct SequenceSlice {
  std::span<const std::int32_t> tokens;       // the new tokens, at least one
  std::int32_t start_position = 0;            // position of tokens[0]; everything before it is in the cache already
  std::span<const std::int32_t> block_table;  // KV block ids that cover positions [0, start_position + tokens.size())
  std::int32_t state_slot = -1;  // recurrent-state slot, or -1 where the model has none. At start_position 0 the
                                 // state starts from zero, whatever the slot held.
  // Offsets into `tokens` whose logits are wanted, ascending; usually the last one, or none during a prefill chunk.
  std::span<const std::int32_t> logit_rows;
};

struct BatchView {
  std::span<const SequenceSlice> slices;

  std::int64_t total_tokens() const {
    std::int64_t n = 0;
    for (const SequenceSlice& slice : slices) n += static_cast<std::int64_t>(slice.tokens.size());
    return n;
  }
  std::int64_t total_logit_rows() const {
    std::int64_t n = 0;
    for (const SequenceSlice& slice : slices) n += static_cast<std::int64_t>(slice.logit_rows.size());
    return n;
  }
};

}  // namespace sterling
