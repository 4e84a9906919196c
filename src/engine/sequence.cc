#include "engine/sequence.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace sterling::engine {

Sequence::Sequence(RequestId id, TokenRequest request) : id_(id), request_(std::move(request)) {
  tokens_ = std::move(request_.prompt);
  request_.prompt.clear();
  prompt_size_ = size();
}

std::span<const std::int32_t> Sequence::masked() const {
  if (generated() >= request_.min_tokens) return {};
  return request_.stop_token_ids;
}

void Sequence::wanted_rows(std::int32_t count, std::vector<std::int32_t>& out) const {
  out.clear();
  for (std::int32_t offset = 0; offset < count; ++offset) {
    const std::int32_t position = computed_ + offset;
    // The row at position p speaks of the token at p + 1; the first prompt token has no row that does.
    const bool owes_logprob = request_.prompt_logprobs && position >= logprobs_done_ && position + 1 < prompt_size_;
    if (owes_logprob || position + 1 == size()) out.push_back(offset);
  }
}

std::int32_t Sequence::wanted_row_count(std::int32_t count) const {
  const std::int32_t end = computed_ + count;
  std::int32_t rows = end == size() ? 1 : 0;
  if (request_.prompt_logprobs) {
    rows += std::max(0, std::min(end, prompt_size_ - 1) - std::max(computed_, logprobs_done_));
  }
  return rows;
}

void Sequence::admit(std::int32_t slot) {
  STERLING_CHECK(phase_ == SequencePhase::kWaiting && computed_ == 0 && block_table.empty());
  state_slot = slot;
  phase_ = SequencePhase::kPrefill;
}

void Sequence::preempt() {
  STERLING_CHECK(phase_ == SequencePhase::kPrefill || phase_ == SequencePhase::kDecode);
  STERLING_CHECK(block_table.empty() && state_slot == -1);
  computed_ = 0;
  phase_ = SequencePhase::kWaiting;
}

void Sequence::advance(std::int32_t count) {
  STERLING_CHECK(phase_ == SequencePhase::kPrefill || phase_ == SequencePhase::kDecode);
  STERLING_CHECK(count >= 1 && count <= pending());
  computed_ += count;
  if (pending() == 0) phase_ = SequencePhase::kDecode;
}

void Sequence::add_prompt_logprob(float logprob) {
  STERLING_CHECK(logprobs_done_ + 1 < prompt_size_);
  prompt_logprobs_.push_back(logprob);
  ++logprobs_done_;
}

std::vector<float> Sequence::take_prompt_logprobs() {
  return std::exchange(prompt_logprobs_, {});
}

void Sequence::append(std::int32_t token) {
  STERLING_CHECK(phase_ == SequencePhase::kDecode && pending() == 0);
  tokens_.push_back(token);
  const std::vector<std::int32_t>& stops = request_.stop_token_ids;
  if (std::find(stops.begin(), stops.end(), token) != stops.end()) {
    finish(FinishReason::kStop);
  } else if (generated() >= request_.max_tokens) {
    finish(FinishReason::kLength);
  }
}

void Sequence::finish(FinishReason reason) {
  STERLING_CHECK(phase_ != SequencePhase::kFinished && reason != FinishReason::kNone);
  phase_ = SequencePhase::kFinished;
  finish_ = reason;
}

}  // namespace sterling::engine
