#include "engine/scheduler.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace sterling::engine {
namespace {

using Plan = std::vector<std::pair<RequestId, std::int32_t>>;  // request, tokens

// Sequences that never stop by themselves, and a step that computes what is planned and appends a token where one is drawn.
class SchedulerTest : public testing::Test {
 protected:
  Sequence& add(Scheduler& scheduler, std::int32_t prompt, std::int32_t max_tokens = 1000,
                bool prompt_logprobs = false) {
    TokenRequest request;
    request.prompt.assign(static_cast<std::size_t>(prompt), 1);
    request.max_tokens = max_tokens;
    request.prompt_logprobs = prompt_logprobs;
    sequences_.push_back(std::make_unique<Sequence>(sequences_.size() + 1, std::move(request)));
    scheduler.enqueue(*sequences_.back());
    return *sequences_.back();
  }

  Plan step(Scheduler& scheduler) {
    Plan result;
    const std::span<const PlannedSlice> slices = scheduler.plan();
    for (const PlannedSlice& slice : slices) {
      result.emplace_back(slice.sequence->id(), slice.tokens);
      for (std::int32_t rows = slice.sequence->wanted_row_count(slice.tokens); rows > 1; --rows) {
        slice.sequence->add_prompt_logprob(0.0F);
      }
      slice.sequence->advance(slice.tokens);
      if (slice.sequence->pending() == 0) slice.sequence->append(1);
    }
    return result;
  }

 private:
  std::vector<std::unique_ptr<Sequence>> sequences_;
};

TEST_F(SchedulerTest, LendsWhatNobodyHolds) {
  Scheduler scheduler({.block_tokens = 4,
                       .kv_blocks = 6,
                       .state_slots = 2,
                       .max_running = 2,
                       .max_batch_tokens = 16,
                       .max_logit_rows = 8});
  Sequence& first = add(scheduler, 8);
  step(scheduler);
  const auto loan = scheduler.borrow(3);
  ASSERT_TRUE(loan.has_value());
  EXPECT_EQ(loan->blocks.size(), 3U);
  EXPECT_NE(loan->state_slot, first.state_slot);
  for (const std::int32_t block : loan->blocks) {
    EXPECT_EQ(std::count(first.block_table.begin(), first.block_table.end(), block), 0);
  }
  scheduler.give_back(*loan);
  EXPECT_EQ(scheduler.blocks().used(), 2);
  EXPECT_EQ(scheduler.slots().used(), 1);
  EXPECT_FALSE(scheduler.borrow(5).has_value());
  add(scheduler, 4);
  step(scheduler);
  EXPECT_FALSE(scheduler.borrow(1).has_value());  // both slots are taken
}

TEST_F(SchedulerTest, DecodesFirstThenChunksInOrderOfArrival) {
  Scheduler scheduler({.block_tokens = 4,
                       .kv_blocks = 100,
                       .state_slots = 0,
                       .max_running = 8,
                       .max_batch_tokens = 10,
                       .max_logit_rows = 8});
  add(scheduler, 4);
  add(scheduler, 15);
  add(scheduler, 3);
  EXPECT_EQ(step(scheduler), (Plan{{1, 4}, {2, 6}}));
  EXPECT_EQ(step(scheduler), (Plan{{1, 1}, {2, 9}}));
  EXPECT_EQ(step(scheduler), (Plan{{1, 1}, {2, 1}, {3, 3}}));
  EXPECT_EQ(step(scheduler), (Plan{{1, 1}, {2, 1}, {3, 1}}));
}

TEST_F(SchedulerTest, RunningIsCutToWhatAStepHoldsAndToTheSlots) {
  EXPECT_EQ(Scheduler({.block_tokens = 4,
                       .kv_blocks = 9,
                       .state_slots = 0,
                       .max_running = 8,
                       .max_batch_tokens = 5,
                       .max_logit_rows = 7})
                .max_running(),
            5);
  EXPECT_EQ(Scheduler({.block_tokens = 4,
                       .kv_blocks = 9,
                       .state_slots = 3,
                       .max_running = 8,
                       .max_batch_tokens = 5,
                       .max_logit_rows = 7})
                .max_running(),
            3);
  EXPECT_EQ(Scheduler({.block_tokens = 4,
                       .kv_blocks = 9,
                       .state_slots = 0,
                       .max_running = 8,
                       .max_batch_tokens = 50,
                       .max_logit_rows = 7})
                .max_running(),
            7);
}

TEST_F(SchedulerTest, OneTokenOfBudgetServesOneAfterTheOther) {
  Scheduler scheduler({.block_tokens = 4,
                       .kv_blocks = 100,
                       .state_slots = 0,
                       .max_running = 8,
                       .max_batch_tokens = 1,
                       .max_logit_rows = 8});
  Sequence& first = add(scheduler, 2, 2);
  add(scheduler, 1);
  EXPECT_EQ(step(scheduler), (Plan{{1, 1}}));
  EXPECT_EQ(step(scheduler), (Plan{{1, 1}}));
  EXPECT_EQ(step(scheduler), (Plan{{1, 1}}));
  EXPECT_EQ(first.finish_reason(), FinishReason::kLength);
  scheduler.remove(first);
  EXPECT_EQ(step(scheduler), (Plan{{2, 1}}));
}

TEST_F(SchedulerTest, TheYoungestGivesWayAndComesBack) {
  // Five blocks of two tokens; each prompt takes two.
  Scheduler scheduler({.block_tokens = 2,
                       .kv_blocks = 5,
                       .state_slots = 2,
                       .max_running = 2,
                       .max_batch_tokens = 16,
                       .max_logit_rows = 8});
  Sequence& old = add(scheduler, 4);
  Sequence& young = add(scheduler, 3);
  EXPECT_EQ(step(scheduler), (Plan{{1, 4}, {2, 3}}));
  EXPECT_EQ(step(scheduler), (Plan{{1, 1}, {2, 1}}));  // the old one takes the last block
  EXPECT_EQ(scheduler.blocks().free(), 0);
  EXPECT_EQ(step(scheduler), (Plan{{1, 1}}));  // the young one needs a third block: itself the youngest, it goes
  EXPECT_EQ(young.phase(), SequencePhase::kWaiting);
  EXPECT_EQ(scheduler.preemptions(), 1u);
  EXPECT_EQ(scheduler.slots().used(), 1);
  EXPECT_EQ(young.size(), 5);
  EXPECT_EQ(step(scheduler), (Plan{{1, 1}}));  // two free blocks, but it has need of three and one to spare
  scheduler.remove(old);
  EXPECT_EQ(step(scheduler), (Plan{{2, 5}}));  // prompt and generated tokens again
  EXPECT_EQ(young.phase(), SequencePhase::kDecode);
  EXPECT_EQ(young.size(), 6);
}

TEST_F(SchedulerTest, NobodyOvertakesAPreemptedOrAWaitingOne) {
  Scheduler scheduler({.block_tokens = 1,
                       .kv_blocks = 10,
                       .state_slots = 0,
                       .max_running = 4,
                       .max_batch_tokens = 16,
                       .max_logit_rows = 8});
  Sequence& first = add(scheduler, 4);
  add(scheduler, 8);  // does not fit beside it
  add(scheduler, 1);  // would, and must wait all the same
  EXPECT_EQ(step(scheduler), (Plan{{1, 4}}));
  EXPECT_EQ(step(scheduler), (Plan{{1, 1}}));
  scheduler.remove(first);
  EXPECT_EQ(step(scheduler), (Plan{{2, 8}, {3, 1}}));  // it takes one block, and one is to spare for the second
}

TEST_F(SchedulerTest, LogitRowsBoundTheChunksOfPromptLogprobs) {
  Scheduler scheduler({.block_tokens = 4,
                       .kv_blocks = 100,
                       .state_slots = 0,
                       .max_running = 4,
                       .max_batch_tokens = 16,
                       .max_logit_rows = 4});
  add(scheduler, 2);
  EXPECT_EQ(step(scheduler), (Plan{{1, 2}}));
  add(scheduler, 8, 10, true);
  EXPECT_EQ(step(scheduler), (Plan{{1, 1}, {2, 3}}));
  EXPECT_EQ(step(scheduler), (Plan{{1, 1}, {2, 3}}));
  EXPECT_EQ(step(scheduler), (Plan{{1, 1}, {2, 2}}));
}

TEST_F(SchedulerTest, RemovingFreesEverythingWhereverTheSequenceIs) {
  Scheduler scheduler({.block_tokens = 4,
                       .kv_blocks = 10,
                       .state_slots = 2,
                       .max_running = 2,
                       .max_batch_tokens = 8,
                       .max_logit_rows = 8});
  Sequence& decoding = add(scheduler, 4);
  Sequence& half = add(scheduler, 20);
  Sequence& waiting = add(scheduler, 4);
  EXPECT_EQ(step(scheduler), (Plan{{1, 4}, {2, 4}}));
  scheduler.remove(waiting);
  scheduler.remove(half);
  scheduler.remove(decoding);
  EXPECT_FALSE(scheduler.has_work());
  EXPECT_EQ(scheduler.blocks().used(), 0);
  EXPECT_EQ(scheduler.slots().used(), 0);
  EXPECT_TRUE(scheduler.plan().empty());
}

}  // namespace
}  // namespace sterling::engine
