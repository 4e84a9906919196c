#include "engine/scheduler.h"

#include <algorithm>

#include "base/check.h"

namespace sterling::engine {

Scheduler::Scheduler(const SchedulerLimits& limits)
    : limits_(limits), blocks_(limits.kv_blocks), slots_(limits.state_slots) {
  STERLING_CHECK(limits.block_tokens > 0 && limits.kv_blocks > 0 && limits.state_slots >= 0);
  max_running_ = std::min({limits.max_running, limits.max_batch_tokens, limits.max_logit_rows});
  if (limits.state_slots > 0) max_running_ = std::min(max_running_, limits.state_slots);
  STERLING_CHECK(max_running_ > 0);
}

void Scheduler::enqueue(Sequence& sequence) {
  STERLING_CHECK(sequence.phase() == SequencePhase::kWaiting);
  STERLING_CHECK(waiting_.empty() || waiting_.back()->id() < sequence.id());
  STERLING_CHECK(running_.empty() || running_.back()->id() < sequence.id());
  waiting_.push_back(&sequence);
}

void Scheduler::remove(Sequence& sequence) {
  free_memory(sequence);
  if (const auto place = std::find(running_.begin(), running_.end(), &sequence); place != running_.end()) {
    running_.erase(place);
    return;
  }
  const auto place = std::find(waiting_.begin(), waiting_.end(), &sequence);
  STERLING_CHECK(place != waiting_.end());
  waiting_.erase(place);
}

std::optional<Scheduler::Loan> Scheduler::borrow(std::int32_t blocks) {
  if (blocks_.free() < blocks || (limits_.state_slots > 0 && slots_.free() == 0)) return std::nullopt;
  Loan loan;
  for (std::int32_t i = 0; i < blocks; ++i) loan.blocks.push_back(*blocks_.take());
  if (limits_.state_slots > 0) loan.state_slot = *slots_.take();
  return loan;
}

void Scheduler::give_back(const Loan& loan) {
  for (const std::int32_t block : loan.blocks) blocks_.release(block);
  if (loan.state_slot >= 0) slots_.release(loan.state_slot);
}

std::span<const PlannedSlice> Scheduler::plan() {
  plan_.clear();
  tokens_left_ = limits_.max_batch_tokens;
  rows_left_ = limits_.max_logit_rows;
  plan_decodes();
  plan_prefills();
  STERLING_CHECK(!plan_.empty() || !has_work());
  return plan_;
}

void Scheduler::plan_decodes() {
  // Oldest first: a victim is always younger than all that are planned already, so a plan never shrinks.
  for (std::size_t i = 0; i < running_.size(); ++i) {
    Sequence& sequence = *running_[i];
    if (sequence.phase() != SequencePhase::kDecode) break;
    while (i < running_.size() && !cover(sequence, sequence.size())) preempt_youngest();
    if (i == running_.size()) break;  // it was the youngest itself
    add_slice(sequence, 1);
  }
}

void Scheduler::plan_prefills() {
  if (!running_.empty() && running_.back()->phase() == SequencePhase::kPrefill && !plan_chunk(*running_.back())) return;
  while (!waiting_.empty() && tokens_left_ > 0 && rows_left_ > 0 && may_admit(*waiting_.front())) {
    admit_head();
    if (!plan_chunk(*running_.back())) return;
  }
}

bool Scheduler::may_admit(const Sequence& sequence) const {
  if (running_.empty()) return true;  // the pool is free, and holds any accepted request's worst case
  const auto running = static_cast<std::int32_t>(running_.size());
  return running < max_running_ && blocks_for(sequence.size()) + running <= blocks_.free();
}

void Scheduler::admit_head() {
  Sequence& sequence = *waiting_.front();
  waiting_.pop_front();
  std::int32_t slot = -1;
  if (limits_.state_slots > 0) {
    const std::optional<std::int32_t> taken = slots_.take();
    STERLING_CHECK(taken.has_value());  // there are at least max_running_
    slot = *taken;
  }
  sequence.admit(slot);
  running_.push_back(&sequence);
}

// Plans as much of the sequence's prompt as budget, rows and blocks allow; true when that is all of it.
bool Scheduler::plan_chunk(Sequence& sequence) {
  const auto held = static_cast<std::int64_t>(sequence.block_table.size());
  const std::int64_t room = (held + blocks_.free()) * limits_.block_tokens - sequence.computed();
  auto count = static_cast<std::int32_t>(
      std::min<std::int64_t>({std::int64_t{sequence.pending()}, std::int64_t{tokens_left_}, room}));
  if (count <= 0) return false;
  // Wanted rows lie together at the end of a chunk, so each token less is a row less until they fit.
  count -= std::max(0, sequence.wanted_row_count(count) - rows_left_);
  while (count > 0 && sequence.wanted_row_count(count) > rows_left_) --count;
  if (count <= 0) return false;
  const bool covered = cover(sequence, sequence.computed() + count);
  STERLING_CHECK(covered);
  const bool whole = count == sequence.pending();
  add_slice(sequence, count);
  return whole;
}

std::int32_t Scheduler::blocks_for(std::int32_t tokens) const {
  return tokens / limits_.block_tokens + (tokens % limits_.block_tokens != 0 ? 1 : 0);
}

// Takes blocks until the table covers `tokens` positions; false when the pool runs out.
bool Scheduler::cover(Sequence& sequence, std::int32_t tokens) {
  const auto needed = static_cast<std::size_t>(blocks_for(tokens));
  while (sequence.block_table.size() < needed) {
    const std::optional<std::int32_t> block = blocks_.take();
    if (!block.has_value()) return false;
    sequence.block_table.push_back(*block);
  }
  return true;
}

void Scheduler::preempt_youngest() {
  Sequence& victim = *running_.back();
  running_.pop_back();
  free_memory(victim);
  victim.preempt();
  STERLING_CHECK(waiting_.empty() || victim.id() < waiting_.front()->id());
  waiting_.push_front(&victim);
  ++preemptions_;
}

void Scheduler::free_memory(Sequence& sequence) {
  for (const std::int32_t block : sequence.block_table) blocks_.release(block);
  sequence.block_table.clear();
  if (sequence.state_slot >= 0) slots_.release(sequence.state_slot);
  sequence.state_slot = -1;
}

void Scheduler::add_slice(Sequence& sequence, std::int32_t tokens) {
  tokens_left_ -= tokens;
  rows_left_ -= sequence.wanted_row_count(tokens);
  plan_.push_back({&sequence, tokens});
}

}  // namespace sterling::engine
