#include "lab/audit_servers.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sterling::lab {
namespace {

ServerStep step(std::string token, std::vector<std::pair<std::string, double>> probabilities) {
  ServerStep out;
  for (auto& [name, p] : probabilities) {
    if (name == token) out.logprob = std::log(p);
    out.top.emplace_back(name, std::log(p));
  }
  out.token = std::move(token);
  return out;
}

boost::json::object parsed(std::string_view text) {
  return boost::json::parse(text).as_object();
}

TEST(AuditServers, WholeDistributionsGiveTheWholeDivergence) {
  const ServerStep a = step("x", {{"x", 0.7}, {"y", 0.2}, {"z", 0.1}});
  const ServerStep b = step("x", {{"x", 0.5}, {"y", 0.25}, {"z", 0.25}});
  const double exact = 0.7 * std::log(0.7 / 0.5) + 0.2 * std::log(0.2 / 0.25) + 0.1 * std::log(0.1 / 0.25);
  EXPECT_NEAR(divergence_at_least(a, b), exact, 1e-9);
  EXPECT_EQ(divergence_at_least(a, a), 0.0);
}

TEST(AuditServers, WhatIsNotListedNeverMakesItMore) {
  // The full vocabulary has x, y, z, w; servers list fewer.
  const ServerStep a_full = step("x", {{"x", 0.6}, {"y", 0.2}, {"z", 0.15}, {"w", 0.05}});
  const ServerStep b_full = step("x", {{"x", 0.4}, {"y", 0.1}, {"z", 0.2}, {"w", 0.3}});
  const double exact = divergence_at_least(a_full, b_full);
  const ServerStep a_two = step("x", {{"x", 0.6}, {"y", 0.2}});
  const ServerStep b_two = step("x", {{"x", 0.4}, {"w", 0.3}});
  const double partial = divergence_at_least(a_two, b_two);
  EXPECT_LE(partial, exact + 1e-12);
  // Only x is common: 0.6 against 0.4, and 0.4 against 0.6 for all others.
  EXPECT_NEAR(partial, 0.6 * std::log(0.6 / 0.4) + 0.4 * std::log(0.4 / 0.6), 1e-9);
}

TEST(AuditServers, NothingFiniteIsInfinitelyFar) {
  ServerStep b = step("x", {{"x", 0.5}});
  b.logprob = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(std::isinf(divergence_at_least(step("x", {{"x", 0.5}}), b)));
}

TEST(AuditServers, ComparesUpToTheFirstTokenThatDiffers) {
  ServerAnswer a, b;
  a.prompt_tokens = 300;
  a.steps = {step("x", {{"x", 0.6}, {"y", 0.4}}), step("x", {{"x", 0.55}, {"y", 0.45}}), step("z", {{"z", 1.0}})};
  b.steps = {step("x", {{"x", 0.6}, {"y", 0.4}}), step("y", {{"y", 0.55}, {"x", 0.45}}), step("q", {{"q", 1.0}})};
  const PromptCost cost = compare_answers(a, b);
  ASSERT_EQ(cost.rows.size(), 2U);
  EXPECT_EQ(cost.rows[0].position, 300);
  EXPECT_EQ(cost.rows[1].position, 301);
  EXPECT_FALSE(cost.rows[0].flipped());
  EXPECT_TRUE(cost.rows[1].flipped());
  EXPECT_NEAR(cost.rows[1].choice_logprob, std::log(0.45), 1e-12);
  EXPECT_EQ(cost.greedy.first_change, 1);
  EXPECT_NEAR(cost.greedy.margin, std::log(0.55 / 0.45), 1e-6);
}

TEST(AuditServers, ReadsBothShapesOfLogprobs) {
  const auto chat = read_steps(parsed(R"({"logprobs": {"content": [{"token": "a", "logprob": -0.5,
      "top_logprobs": [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -1.5}]}]}})"));
  ASSERT_TRUE(chat.ok());
  ASSERT_EQ(chat->size(), 1U);
  EXPECT_EQ((*chat)[0].token, "a");
  EXPECT_EQ((*chat)[0].top.size(), 2U);
  const auto lists = read_steps(parsed(R"({"logprobs": {"tokens": ["a", "c"], "token_logprobs": [-0.5, -1],
      "top_logprobs": [{"a": -0.5, "b": -1.5}, {"c": -1}]}})"));
  ASSERT_TRUE(lists.ok());
  ASSERT_EQ(lists->size(), 2U);
  EXPECT_EQ((*lists)[0].top, (*chat)[0].top);
  EXPECT_EQ((*lists)[1].token, "c");
}

TEST(AuditServers, NoLogprobsIsAnError) {
  for (const char* text :
       {R"({"text": "x"})", R"({"logprobs": null})", R"({"logprobs": {"tokens": ["a"], "token_logprobs": []}})",
        R"({"logprobs": {"content": [{"token": "a"}]}})"}) {
    const auto steps = read_steps(parsed(text));
    ASSERT_FALSE(steps.ok()) << text;
    EXPECT_EQ(steps.error().code, ErrorCode::kUnsupported);
  }
}

}  // namespace
}  // namespace sterling::lab
