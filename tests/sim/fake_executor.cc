#include "tests/sim/fake_executor.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <limits>
#include <utility>

#include "engine/sampler.h"
#include "engine/token_history.h"

namespace sterling::sim {
namespace {

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {  // the finaliser of splitmix64
  std::uint64_t z = hash + 0x9e3779b97f4a7c15u + value * 0xd1342543de82ef95u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

std::uint64_t mix_token(std::uint64_t hash, std::int32_t token) {
  return mix(hash, static_cast<std::uint64_t>(static_cast<std::uint32_t>(token)));
}

void logits_of(std::uint64_t hash, std::span<float> row) {
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = static_cast<float>(mix(hash, i) % 33) / 4.0F - 4.0F;
}

}  // namespace

void fake_logits(std::span<const std::int32_t> history, std::span<float> row) {
  std::uint64_t hash = 0;
  for (const std::int32_t token : history) hash = mix_token(hash, token);
  logits_of(hash, row);
}

FakeExecutor::FakeExecutor(const model::ExecutorLimits& limits)
    : limits_(limits),
      cells_(static_cast<std::size_t>(limits.kv_blocks) * static_cast<std::size_t>(limits.block_tokens), -1),
      slots_(static_cast<std::size_t>(limits.state_slots)),
      writers_(static_cast<std::size_t>(limits.kv_blocks), -1) {}

Error FakeExecutor::complain(std::string what) {
  if (complaint_.empty()) complaint_ = what;
  return make_error(ErrorCode::kInternal, std::move(what));
}

Status FakeExecutor::check(const BatchView& batch, std::size_t logit_values) {
  if (batch.slices.empty()) return complain("an empty step");
  if (batch.total_tokens() > limits_.max_batch_tokens) return complain("more tokens than a step may have");
  if (static_cast<std::int64_t>(batch.slices.size()) > limits_.max_batch_slices) return complain("too many slices");
  const std::int64_t max_rows = limits_.max_logit_rows > 0 ? limits_.max_logit_rows : limits_.max_batch_slices;
  if (batch.total_logit_rows() > max_rows) return complain("more logit rows than a step may have");
  if (static_cast<std::int64_t>(logit_values) != batch.total_logit_rows() * limits_.vocab_size) {
    return complain("the logits buffer does not fit");
  }
  std::fill(writers_.begin(), writers_.end(), -1);
  std::vector<std::int32_t> slots;
  for (std::size_t i = 0; i < batch.slices.size(); ++i) {
    const SequenceSlice& slice = batch.slices[i];
    if (Status status = check_slice(slice); !status.ok()) return status;
    for (const std::int32_t block : slice.block_table) {
      if (std::exchange(writers_[static_cast<std::size_t>(block)], static_cast<std::int32_t>(i)) != -1) {
        return complain("a block stands in two places of the step's tables");
      }
    }
    if (slice.state_slot >= 0) slots.push_back(slice.state_slot);
  }
  std::sort(slots.begin(), slots.end());
  if (std::adjacent_find(slots.begin(), slots.end()) != slots.end()) return complain("two slices share a state slot");
  return {};
}

Status FakeExecutor::check_slice(const SequenceSlice& slice) {
  if (slice.tokens.empty()) return complain("a slice without tokens");
  const std::int64_t end = slice.start_position + static_cast<std::int64_t>(slice.tokens.size());
  if (end > limits_.max_sequence_tokens) return complain("a sequence beyond the limit");
  if (static_cast<std::int64_t>(slice.block_table.size()) != (end + limits_.block_tokens - 1) / limits_.block_tokens) {
    return complain("the block table does not cover exactly the sequence");
  }
  for (const std::int32_t block : slice.block_table) {
    if (block < 0 || block >= limits_.kv_blocks) return complain("a block id out of range");
  }
  std::int32_t previous = -1;
  for (const std::int32_t row : slice.logit_rows) {
    if (row <= previous || row >= static_cast<std::int32_t>(slice.tokens.size())) return complain("bad logit rows");
    previous = row;
  }
  if (limits_.state_slots == 0) return slice.state_slot == -1 ? Status() : complain("a slot where there are none");
  if (slice.state_slot < 0 || slice.state_slot >= limits_.state_slots) return complain("a slot id out of range");
  if (slice.start_position > 0 && slots_[static_cast<std::size_t>(slice.state_slot)].position != slice.start_position) {
    return complain("the state slot stands at another position than the slice");
  }
  return {};
}

Status FakeExecutor::run_slice(const SequenceSlice& slice, float*& out) {
  const auto cell = [&](std::int32_t position) -> std::int32_t& {
    const std::int32_t block = slice.block_table[static_cast<std::size_t>(position / limits_.block_tokens)];
    return cells_[static_cast<std::size_t>(block * limits_.block_tokens + position % limits_.block_tokens)];
  };
  const auto count = static_cast<std::int32_t>(slice.tokens.size());
  for (std::int32_t i = 0; i < count; ++i) cell(slice.start_position + i) = slice.tokens[static_cast<std::size_t>(i)];

  Slot none;
  Slot& slot = slice.state_slot >= 0 ? slots_[static_cast<std::size_t>(slice.state_slot)] : none;
  if (slice.start_position == 0) slot = Slot{};
  std::uint64_t hash = 0;
  bool poisoned = false;
  std::size_t next_row = 0;
  for (std::int32_t position = 0; position < slice.start_position + count; ++position) {
    const std::int32_t token = cell(position);
    hash = mix_token(hash, token);
    poisoned = poisoned || (poison_token.has_value() && token == *poison_token);
    if (position < slice.start_position) continue;
    slot.hash = mix_token(slot.hash, token);
    slot.position = position + 1;
    const std::int32_t offset = position - slice.start_position;
    if (next_row >= slice.logit_rows.size() || slice.logit_rows[next_row] != offset) continue;
    ++next_row;
    // With a recurrent state, what was read from the blocks and what went through the slot must be the same history.
    if (slice.state_slot >= 0 && slot.hash != hash) return complain("blocks and state slot hold different histories");
    const std::span<float> row(out, static_cast<std::size_t>(limits_.vocab_size));
    logits_of(hash, row);
    if (poisoned) row[row.size() / 2] = std::numeric_limits<float>::quiet_NaN();
    out += limits_.vocab_size;
  }
  return {};
}

Status FakeExecutor::forward(const BatchView& batch, std::span<float> logits) {
  if (Status status = check(batch, logits.size()); !status.ok()) return status;
  largest_step_ = std::max(largest_step_, batch.total_tokens());
  if (failing_step == steps_++) return make_error(ErrorCode::kIo, "the fake device failed");
  float* out = logits.data();
  for (const SequenceSlice& slice : batch.slices) {
    if (Status status = run_slice(slice, out); !status.ok()) return status;
  }
  return {};
}

Answer answer_alone(const engine::TokenRequest& request, std::int32_t vocab_size) {
  Answer answer;
  engine::Sampler sampler;
  engine::TokenHistory history;
  history.add_prompt(request.prompt);
  std::vector<std::int32_t> tokens;
  std::vector<float> row(static_cast<std::size_t>(vocab_size));
  for (std::size_t i = 0; i < request.prompt.size(); ++i) {
    if (i > 0 && request.prompt_logprobs) {
      fake_logits(tokens, row);
      answer.prompt_logprobs.push_back(*sampler.logprob(row, request.prompt[i], static_cast<std::int32_t>(i)));
    }
    tokens.push_back(request.prompt[i]);
  }
  while (answer.finish == engine::FinishReason::kNone) {
    fake_logits(tokens, row);
    engine::DrawRequest draw;
    draw.params = &request.sampling;
    draw.history = &history;
    draw.position = static_cast<std::int32_t>(tokens.size());
    draw.top_logprobs = request.top_logprobs;
    if (static_cast<std::int32_t>(answer.tokens.size()) < request.min_tokens) draw.masked = request.stop_token_ids;
    const auto drawn = sampler.draw(row, draw);
    tokens.push_back(drawn->token);
    history.add_output(drawn->token);
    answer.tokens.push_back(drawn->token);
    answer.logprobs.push_back(drawn->logprob);
    answer.tops.push_back(drawn->top);
    const auto& stops = request.stop_token_ids;
    if (std::find(stops.begin(), stops.end(), drawn->token) != stops.end()) {
      answer.finish = engine::FinishReason::kStop;
    } else if (static_cast<std::int32_t>(answer.tokens.size()) == request.max_tokens) {
      answer.finish = engine::FinishReason::kLength;
    }
  }
  return answer;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
  });
}

bool same_tops(std::span<const engine::TokenLogprob> a, std::span<const engine::TokenLogprob> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.token == y.token && std::bit_cast<std::uint32_t>(x.logprob) == std::bit_cast<std::uint32_t>(y.logprob);
  });
}

}  // namespace sterling::sim
