#include "engine/sequence.h"

#include <gtest/gtest.h>

namespace sterling::engine {
namespace {

using Rows = std::vector<std::int32_t>;

TokenRequest request_of(std::int32_t prompt, std::int32_t max_tokens) {
  TokenRequest request;
  for (std::int32_t i = 0; i < prompt; ++i) request.prompt.push_back(10 + i);
  request.max_tokens = max_tokens;
  return request;
}

Rows wanted(const Sequence& sequence, std::int32_t count) {
  Rows rows;
  sequence.wanted_rows(count, rows);
  EXPECT_EQ(static_cast<std::int32_t>(rows.size()), sequence.wanted_row_count(count));
  return rows;
}

TEST(Sequence, PrefillInChunksThenDecodeToTheLimit) {
  Sequence sequence(7, request_of(5, 2));
  EXPECT_EQ(sequence.phase(), SequencePhase::kWaiting);
  sequence.admit(3);
  EXPECT_EQ(sequence.state_slot, 3);
  EXPECT_EQ(wanted(sequence, 2), Rows{});
  EXPECT_EQ(wanted(sequence, 5), Rows{4});
  sequence.advance(2);
  EXPECT_EQ(sequence.phase(), SequencePhase::kPrefill);
  EXPECT_EQ(wanted(sequence, 3), Rows{2});
  sequence.advance(3);
  EXPECT_EQ(sequence.phase(), SequencePhase::kDecode);
  sequence.append(1);
  EXPECT_EQ(sequence.pending(), 1);
  EXPECT_EQ(wanted(sequence, 1), Rows{0});
  sequence.advance(1);
  sequence.append(2);
  EXPECT_EQ(sequence.finish_reason(), FinishReason::kLength);
  EXPECT_EQ(sequence.phase(), SequencePhase::kFinished);
  EXPECT_EQ(sequence.generated(), 2);
}

TEST(Sequence, PreemptionForgetsWhatWasComputedAndKeepsTheTokens) {
  Sequence sequence(1, request_of(3, 10));
  sequence.admit(-1);
  sequence.advance(3);
  sequence.append(77);
  sequence.advance(1);
  sequence.append(78);
  sequence.preempt();
  EXPECT_EQ(sequence.phase(), SequencePhase::kWaiting);
  sequence.admit(-1);
  EXPECT_EQ(sequence.pending(), 5);
  EXPECT_EQ(wanted(sequence, 4), Rows{});  // the rows of tokens that are drawn already are not wanted again
  EXPECT_EQ(wanted(sequence, 5), Rows{4});
  EXPECT_EQ(sequence.tokens()[3], 77);
}

TEST(Sequence, PromptLogprobsWantEveryRowOnce) {
  TokenRequest request = request_of(5, 10);
  request.prompt_logprobs = true;
  Sequence sequence(1, std::move(request));
  sequence.admit(-1);
  EXPECT_EQ(wanted(sequence, 5), (Rows{0, 1, 2, 3, 4}));
  EXPECT_EQ(wanted(sequence, 3), (Rows{0, 1, 2}));
  sequence.advance(3);
  for (const float x : {-1.0F, -2.0F, -3.0F}) sequence.add_prompt_logprob(x);
  EXPECT_EQ(wanted(sequence, 2), (Rows{0, 1}));
  sequence.preempt();
  sequence.admit(-1);
  EXPECT_EQ(wanted(sequence, 3), Rows{});  // those three are there
  EXPECT_EQ(wanted(sequence, 5), (Rows{3, 4}));
  sequence.advance(5);
  sequence.add_prompt_logprob(-4.0F);
  EXPECT_EQ(sequence.take_prompt_logprobs(), (std::vector<float>{-1.0F, -2.0F, -3.0F, -4.0F}));
  sequence.append(5);
  sequence.preempt();
  sequence.admit(-1);
  EXPECT_EQ(wanted(sequence, 6), Rows{5});  // taken ones are not wanted again either
}

TEST(Sequence, StopIdsAreMaskedUntilMinTokens) {
  TokenRequest request = request_of(1, 10);
  request.min_tokens = 2;
  request.stop_token_ids = {4, 5};
  Sequence sequence(1, std::move(request));
  sequence.admit(-1);
  sequence.advance(1);
  EXPECT_EQ(sequence.masked().size(), 2u);
  sequence.append(9);
  EXPECT_EQ(sequence.masked().size(), 2u);
  sequence.advance(1);
  sequence.append(9);
  EXPECT_TRUE(sequence.masked().empty());
  sequence.advance(1);
  sequence.append(5);
  EXPECT_EQ(sequence.finish_reason(), FinishReason::kStop);
}

TEST(Sequence, AStopTokenAtTheLimitIsAStop) {
  TokenRequest request = request_of(1, 1);
  request.stop_token_ids = {4};
  Sequence sequence(1, std::move(request));
  sequence.admit(-1);
  sequence.advance(1);
  sequence.append(4);
  EXPECT_EQ(sequence.finish_reason(), FinishReason::kStop);
}

TEST(SequenceDeathTest, StepsOutOfOrderAreBugsOfOurs) {
  Sequence sequence(1, request_of(3, 1));
  EXPECT_DEATH(sequence.advance(1), "");
  sequence.admit(-1);
  EXPECT_DEATH(sequence.advance(4), "");
  EXPECT_DEATH(sequence.append(1), "");
  EXPECT_DEATH(sequence.admit(-1), "");
}

}  // namespace
}  // namespace sterling::engine
