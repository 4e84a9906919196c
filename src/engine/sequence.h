// One request's tokens and where it stands: a state machine without clock, threads, tensors or sampling.
//
//   kWaiting → kPrefill → kDecode → kFinished; preempt() leads from kPrefill and kDecode back to kWaiting, finish() from anywhere to
//   kFinished. "Computed" tokens have their K/V (and recurrent state) in the pool; the last drawn token is never computed
//   before the step that needs it, so a decode step has exactly one pending token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/engine.h"

namespace sterling::engine {

enum class SequencePhase { kWaiting, kPrefill, kDecode, kFinished };

class Sequence {
 public:
  Sequence(RequestId id, TokenRequest request);

  RequestId id() const { return id_; }  // ascending in order of arrival
  const TokenRequest& request() const { return request_; }
  SequencePhase phase() const { return phase_; }
  FinishReason finish_reason() const { return finish_; }

  // Prompt and generated tokens.
  std::span<const std::int32_t> tokens() const { return tokens_; }
  std::int32_t size() const { return static_cast<std::int32_t>(tokens_.size()); }
  std::int32_t prompt_size() const { return prompt_size_; }
  std::int32_t generated() const { return size() - prompt_size_; }
  std::int32_t computed() const { return computed_; }
  std::int32_t pending() const { return size() - computed_; }

  // Tokens that may not be drawn next: the stop ids until min_tokens are there.
  std::span<const std::int32_t> masked() const;

  // Offsets, within the next `count` pending tokens, of the rows whose logits are wanted: prompt tokens that owe a
  // logprob, and the sequence's last token, whose row gives the next one.
  void wanted_rows(std::int32_t count, std::vector<std::int32_t>& out) const;
  std::int32_t wanted_row_count(std::int32_t count) const;

  void admit(std::int32_t state_slot);
  // Everything computed is forgotten; blocks and slot must have been given back.
  void preempt();
  // The next `count` pending tokens are computed.
  void advance(std::int32_t count);
  // The logprob of the next prompt token that owes one.
  void add_prompt_logprob(float logprob);
  // All of them, once.
  std::vector<float> take_prompt_logprobs();
  // Appends a drawn token; finishes with kStop or kLength where due.
  void append(std::int32_t token);
  void finish(FinishReason reason);

  // Owned here, filled and emptied by the scheduler.
  std::vector<std::int32_t> block_table;
  std::int32_t state_slot = -1;

 private:
  RequestId id_;
  TokenRequest request_;  // its prompt has moved into tokens_
  std::vector<std::int32_t> tokens_;
  std::int32_t prompt_size_;
  std::int32_t computed_ = 0;
  std::int32_t logprobs_done_ = 0;  // prompt tokens whose logprob is there; survives take_prompt_logprobs()
  std::vector<float> prompt_logprobs_;
  SequencePhase phase_ = SequencePhase::kWaiting;
  FinishReason finish_ = FinishReason::kNone;
};

}  // namespace sterling::engine
