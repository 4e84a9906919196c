// Which sequences compute how many tokens in the next step, and who holds which KV blocks and state slots. Pure bookkeeping.
//
// Rules, each with its reason:
// - Decode rows first, every running sequence's, then prefill chunks in order of arrival with what is left of the token budget:
//   no answer stalls because another prompt is long. At most min(budget, rows) sequences run, so all their rows always fit, and
//   while one of them is in prefill at least one token of the budget is left for it.
// - A sequence is admitted, strictly in order of arrival, when the free blocks hold the tokens it has now and one spare block per
//   running sequence: optimistic about the output, because most answers end long before max_tokens.
// - When a decode row finds the pool empty, the youngest running sequence is preempted: its blocks and slot are freed, it goes
//   back to the head of the queue and later computes prompt and generated tokens again. Draws are keyed by position, so its
//   further tokens are the same. The oldest running sequence is never preempted and a worst case beyond the whole pool is refused
//   at submission, so the oldest always comes to its end: no deadlock.
// - The next sequence is admitted only when the one before has its whole prompt in the plan. So at most one sequence is in
//   mid-prefill; it is the youngest, and what it lacks is at worst held by decoders, who end or preempt it.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "engine/block_pool.h"
#include "engine/sequence.h"

namespace sterling::engine {

struct SchedulerLimits {
  std::int32_t block_tokens = 0;
  std::int32_t kv_blocks = 0;
  std::int32_t state_slots = 0;  // 0: the model has no recurrent state
  std::int32_t max_running = 0;
  std::int32_t max_batch_tokens = 0;
  std::int32_t max_logit_rows = 0;
};

struct PlannedSlice {
  Sequence* sequence = nullptr;
  std::int32_t tokens = 0;  // the next ones pending; the block table covers them
};

// Not thread-safe. Sequences are borrowed: from enqueue() to remove() they must stay where they are.
class Scheduler {
 public:
  explicit Scheduler(const SchedulerLimits& limits);

  // Ids must ascend from call to call.
  void enqueue(Sequence& sequence);
  // Forgets a sequence, waiting or running, and frees what it holds.
  void remove(Sequence& sequence);

  // Memory that no sequence holds, for work between steps; give it back before the next plan. Nullopt: not that much is free.
  struct Loan {
    std::vector<std::int32_t> blocks;
    std::int32_t state_slot = -1;  // -1 where the model has no recurrent state
  };
  std::optional<Loan> borrow(std::int32_t blocks);
  void give_back(const Loan& loan);

  // The next step. Not empty while there is any sequence. The caller computes the tokens and calls Sequence::advance (or
  // remove()) for every slice before the next plan. Valid until then.
  std::span<const PlannedSlice> plan();

  std::span<Sequence* const> running() const { return running_; }  // oldest first
  std::int32_t waiting() const { return static_cast<std::int32_t>(waiting_.size()); }
  bool has_work() const { return !running_.empty() || !waiting_.empty(); }
  std::int32_t max_running() const { return max_running_; }
  std::uint64_t preemptions() const { return preemptions_; }
  const BlockPool& blocks() const { return blocks_; }
  const BlockPool& slots() const { return slots_; }

 private:
  void plan_decodes();
  void plan_prefills();
  bool may_admit(const Sequence& sequence) const;
  void admit_head();
  bool plan_chunk(Sequence& sequence);
  std::int32_t blocks_for(std::int32_t tokens) const;
  bool cover(Sequence& sequence, std::int32_t tokens);
  void preempt_youngest();
  void free_memory(Sequence& sequence);
  void add_slice(Sequence& sequence, std::int32_t tokens);

  SchedulerLimits limits_;
  std::int32_t max_running_;
  BlockPool blocks_;
  BlockPool slots_;
  std::vector<Sequence*> running_;  // oldest first
  std::deque<Sequence*> waiting_;   // oldest first; all younger than those running
  std::vector<PlannedSlice> plan_;
  std::int32_t tokens_left_ = 0;
  std::int32_t rows_left_ = 0;
  std::uint64_t preemptions_ = 0;
};

}  // namespace sterling::engine
