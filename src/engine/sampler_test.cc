#include "engine/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace sterling::engine {
namespace {

using Row = std::vector<float>;

Row random_row(std::size_t size, std::uint64_t seed, double spread) {
  std::mt19937_64 random(seed);
  Row row(size);
  for (float& x : row) {
    double sum = 0.0;  // of twelve uniforms: near enough to a bell
    for (int i = 0; i < 12; ++i) sum += static_cast<double>(random() >> 11) * 0x1p-53 - 0.5;
    x = static_cast<float>(sum * spread);
  }
  return row;
}

Expected<DrawResult> draw(Sampler& sampler, Row row, const SamplingParams& params, std::int32_t position = 0,
                          const TokenHistory* history = nullptr, int top_logprobs = -1,
                          std::vector<std::int32_t> masked = {}) {
  DrawRequest request;
  request.params = &params;
  request.history = history;
  request.masked = masked;
  request.position = position;
  request.top_logprobs = top_logprobs;
  return sampler.draw(row, request);
}

SamplingParams greedy() {
  SamplingParams params;
  params.temperature = 0.0F;
  return params;
}

// The distribution that the parameters ask for, by full sorts in long double.
std::vector<long double> exact_distribution(const Row& row, const SamplingParams& params) {
  std::vector<std::size_t> order(row.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return row[a] > row[b]; });
  if (params.top_k > 0 && static_cast<std::size_t>(params.top_k) < order.size()) {
    order.resize(static_cast<std::size_t>(params.top_k));
  }
  std::vector<long double> weights(row.size(), 0.0L);
  long double total = 0.0L;
  for (const std::size_t i : order) {
    const long double w =
        expl((static_cast<long double>(row[i]) - row[order[0]]) / static_cast<long double>(params.temperature));
    if (w < static_cast<long double>(params.min_p)) continue;
    weights[i] = w;
    total += w;
  }
  long double mass = 0.0L;
  for (const std::size_t i : order) {
    if (mass >= static_cast<long double>(params.top_p) * total) weights[i] = 0.0L;
    mass += weights[i];
  }
  total = std::accumulate(weights.begin(), weights.end(), 0.0L);
  for (long double& w : weights) w /= total;
  return weights;
}

// Chi-square of `draws` draws at successive positions against the exact distribution, as a standard normal deviate (Wilson and
// Hilferty's cube root). Outcomes of small expectation are pooled. A token outside the distribution fails at once.
double deviation(const Row& row, const SamplingParams& params, int draws) {
  const std::vector<long double> exact = exact_distribution(row, params);
  Sampler sampler;
  std::vector<int> counts(row.size(), 0);
  for (int position = 0; position < draws; ++position) {
    const auto drawn = draw(sampler, row, params, position);
    EXPECT_GT(exact[static_cast<std::size_t>(drawn->token)], 0.0L) << "token " << drawn->token << " was cut off";
    ++counts[static_cast<std::size_t>(drawn->token)];
  }
  double chi2 = 0.0;
  int cells = 0;
  double pooled_expected = 0.0;
  double pooled_count = 0.0;
  const auto add_cell = [&](double expected, double count) {
    chi2 += (count - expected) * (count - expected) / expected;
    ++cells;
  };
  for (std::size_t i = 0; i < row.size(); ++i) {
    const double expected = static_cast<double>(exact[i]) * draws;
    if (expected >= 10.0) {
      add_cell(expected, counts[i]);
    } else {
      pooled_expected += expected;
      pooled_count += counts[i];
    }
  }
  if (pooled_expected >= 5.0) add_cell(pooled_expected, pooled_count);
  EXPECT_GT(cells, 3);
  const double k = cells - 1;
  return (std::cbrt(chi2 / k) - (1.0 - 2.0 / (9.0 * k))) / std::sqrt(2.0 / (9.0 * k));
}

struct Truncation {
  std::string name;
  SamplingParams params;
  std::size_t vocab_size = 300;
  double spread = 2.0;
};

std::vector<Truncation> truncations() {
  std::vector<Truncation> result;
  const auto add = [&](std::string name, float temperature, std::int32_t top_k, float top_p, float min_p,
                       std::size_t vocab_size = 300, double spread = 2.0) {
    SamplingParams params;
    params.temperature = temperature;
    params.top_k = top_k;
    params.top_p = top_p;
    params.min_p = min_p;
    params.seed = 42;
    result.push_back({std::move(name), params, vocab_size, spread});
  };
  add("plain", 1.0F, 0, 1.0F, 0.0F);
  add("cool", 0.6F, 0, 1.0F, 0.0F);
  add("hot", 2.5F, 0, 1.0F, 0.0F);
  add("top_k", 1.0F, 20, 1.0F, 0.0F);
  add("top_p_small_nucleus", 0.8F, 0, 0.9F, 0.0F);
  add("top_p_beyond_the_guess", 1.0F, 0, 0.97F, 0.0F, 700, 0.3);  // needs more than the best 256
  add("min_p", 1.0F, 0, 1.0F, 0.1F);
  add("top_k_and_top_p", 0.7F, 20, 0.95F, 0.0F);
  add("all_three", 1.2F, 50, 0.9F, 0.02F);
  add("min_p_and_top_p", 1.2F, 0, 0.8F, 0.02F);
  add("top_k_beyond_vocabulary", 1.0F, 1000, 1.0F, 0.0F);
  return result;
}

TEST(SamplerDistribution, ChiSquareAgainstTheExactOne) {
  for (const Truncation& t : truncations()) {
    const double z = deviation(random_row(t.vocab_size, 11, t.spread), t.params, 40000);
    // A fixed seed: this is one outcome, not a coin toss. Four standard deviations either way: fits too well is wrong too.
    EXPECT_LT(std::fabs(z), 4.0) << t.name;
  }
}

// Streams and seeds are as independent as positions.
TEST(SamplerDistribution, SeedsAndStreamsAreDrawsToo) {
  const Row row = random_row(40, 5, 1.5);
  for (const bool by_stream : {false, true}) {
    SamplingParams params;
    const std::vector<long double> exact = exact_distribution(row, params);
    Sampler sampler;
    std::vector<int> counts(row.size(), 0);
    constexpr int kDraws = 40000;
    for (std::uint64_t i = 0; i < kDraws; ++i) {
      (by_stream ? params.stream : params.seed) = i;
      ++counts[static_cast<std::size_t>(draw(sampler, row, params, 17)->token)];
    }
    for (std::size_t i = 0; i < row.size(); ++i) {
      const double p = static_cast<double>(exact[i]);
      EXPECT_NEAR(counts[i], p * kDraws, 5.0 * std::sqrt(kDraws * p * (1.0 - p)) + 1.0) << i;
    }
  }
}

// A kept token of tiny weight is drawn about never, so whether the cut is exact is asked by other means: a nucleus boundary moved
// by one token.
TEST(Sampler, TopPKeepsTheShortestPrefixThatReachesTheMass) {
  // Weights 8, 4, 2, 1, 1 of 16, at ids out of order.
  const float ln2 = 0.69314718F;
  const Row row = {0.0F, 2 * ln2, 3 * ln2, 0.0F, ln2};
  const auto kept = [&](float top_p) {
    SamplingParams params;
    params.top_p = top_p;
    Sampler sampler;
    std::vector<bool> seen(row.size(), false);
    for (int position = 0; position < 3000; ++position) {
      seen[static_cast<std::size_t>(draw(sampler, row, params, position)->token)] = true;
    }
    return seen;
  };
  using Seen = std::vector<bool>;
  EXPECT_EQ(kept(0.01F), (Seen{false, false, true, false, false}));
  EXPECT_EQ(kept(0.49F), (Seen{false, false, true, false, false}));
  EXPECT_EQ(kept(0.51F), (Seen{false, true, true, false, false}));
  EXPECT_EQ(kept(0.76F), (Seen{false, true, true, false, true}));
  EXPECT_EQ(kept(0.90F), (Seen{true, true, true, false, true}));  // of the two equal ones the lower id
  EXPECT_EQ(kept(0.95F), (Seen{true, true, true, true, true}));
}

TEST(Sampler, GreedyTakesTheLowestIdOfTheBest) {
  Sampler sampler;
  EXPECT_EQ(draw(sampler, {1.0F, 3.0F, 2.0F, 3.0F}, greedy())->token, 1);
  EXPECT_EQ(draw(sampler, {-7.0F}, greedy())->token, 0);
  Row row = random_row(1000, 2, 3.0);
  row[130] = row[700] = 90.0F;
  EXPECT_EQ(draw(sampler, row, greedy())->token, 130);
}

TEST(Sampler, ATemperatureNearZeroIsGreedy) {
  Sampler sampler;
  SamplingParams params;
  params.temperature = std::numeric_limits<float>::denorm_min();
  for (int position = 0; position < 200; ++position) {
    EXPECT_EQ(draw(sampler, {1.0F, 3.0F, 2.0F, 2.9999F}, params, position)->token, 1);
  }
  params.temperature = std::numeric_limits<float>::max();  // and one beyond all bounds is uniform
  std::vector<int> counts(4, 0);
  for (int position = 0; position < 4000; ++position) {
    ++counts[static_cast<std::size_t>(draw(sampler, {1.0F, 3.0F, 2.0F, -30.0F}, params, position)->token)];
  }
  for (const int count : counts) EXPECT_NEAR(count, 1000, 150);
}

TEST(Sampler, LogprobsAreTheModelsOwnDistribution) {
  Sampler sampler;
  SamplingParams params = greedy();
  params.temperature = 0.3F;  // none of these must show in the logprobs
  params.top_k = 5;
  params.logit_bias = {{3, 50.0F}};
  params.presence_penalty = 1.0F;
  TokenHistory history;
  history.add_output(3);
  const Row row = random_row(1000, 9, 4.0);
  const auto result = draw(sampler, row, params, 0, &history, 20);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->token, 3);
  long double total = 0.0L;
  for (const float x : row) total += expl(static_cast<long double>(x));
  const auto exact = [&](std::int32_t token) {
    return static_cast<double>(static_cast<long double>(row[static_cast<std::size_t>(token)]) - logl(total));
  };
  // FP32's half-ulp at values below 32, and nothing more.
  EXPECT_NEAR(static_cast<double>(result->logprob), exact(3), 1e-6);
  ASSERT_EQ(result->top.size(), 20u);
  std::vector<std::int32_t> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return row[static_cast<std::size_t>(a)] > row[static_cast<std::size_t>(b)]; });
  for (std::size_t i = 0; i < 20; ++i) {
    EXPECT_EQ(result->top[i].token, order[i]);
    EXPECT_EQ(result->top[i].logprob, static_cast<float>(exact(order[i])));
  }
  EXPECT_EQ(*sampler.logprob(row, 3, 0), result->logprob);
  EXPECT_TRUE(draw(sampler, row, params, 0, &history, 0)->top.empty());
}

TEST(Sampler, TopLogprobsBeyondTheVocabularyGiveAllOfIt) {
  Sampler sampler;
  const auto result = draw(sampler, {1.0F, 2.0F}, greedy(), 0, nullptr, 2);
  ASSERT_EQ(result->top.size(), 2u);
  EXPECT_EQ(result->top[0].token, 1);
  EXPECT_EQ(result->top[0].logprob, result->logprob);
}

// Penalties seen through greedy choice: the penalised value of token 0 is bracketed by a rival just above and just below it.
void expect_value(const SamplingParams& params, const TokenHistory& history, float logit, double expected) {
  Sampler sampler;
  const auto rival = [&](double value) {
    return draw(sampler, {logit, static_cast<float>(value)}, params, 0, &history)->token;
  };
  EXPECT_EQ(rival(expected - 1e-5), 0) << expected;
  EXPECT_EQ(rival(expected + 1e-5), 1) << expected;
}

TEST(Sampler, PenaltiesAreTheirFormulas) {
  TokenHistory prompt_only;
  prompt_only.add_prompt(std::vector<std::int32_t>{0, 0, 0});
  TokenHistory generated;
  for (int i = 0; i < 3; ++i) generated.add_output(0);
  const TokenHistory unseen;

  SamplingParams params = greedy();
  params.repetition_penalty = 1.3F;
  expect_value(params, prompt_only, 2.6F, 2.6 / 1.3);
  expect_value(params, prompt_only, -2.0F, -2.0 * 1.3);
  expect_value(params, generated, 2.6F, 2.6 / 1.3);
  expect_value(params, unseen, 2.6F, 2.6);

  params = greedy();
  params.frequency_penalty = 0.5F;
  expect_value(params, generated, 2.0F, 2.0 - 3 * 0.5);
  expect_value(params, prompt_only, 2.0F, 2.0);
  params.frequency_penalty = -0.5F;
  expect_value(params, generated, 2.0F, 2.0 + 3 * 0.5);

  params = greedy();
  params.presence_penalty = 0.75F;
  expect_value(params, generated, 2.0F, 2.0 - 0.75);
  expect_value(params, prompt_only, 2.0F, 2.0);

  params.frequency_penalty = 0.5F;
  params.repetition_penalty = 2.0F;
  params.logit_bias = {{0, 4.0F}};  // first of all
  expect_value(params, generated, 2.0F, (2.0 + 4.0) / 2.0 - 3 * 0.5 - 0.75);
  params.logit_bias = {{0, 1.0F}, {0, 3.0F}};  // named twice: both
  expect_value(params, generated, 2.0F, (2.0 + 4.0) / 2.0 - 3 * 0.5 - 0.75);
}

TEST(Sampler, AbsurdPenaltiesSaturateInsteadOfOverflowing) {
  Sampler sampler;
  TokenHistory history;
  history.add_output(0);
  SamplingParams params = greedy();
  params.repetition_penalty = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(draw(sampler, {1.0F, 5.0F}, params, 0, &history)->token, 0);
  params.temperature = 1.0F;
  params.logit_bias = {{0, std::numeric_limits<float>::max()}, {0, std::numeric_limits<float>::max()}};
  const auto result = draw(sampler, {1.0F, 5.0F}, params, 0, &history, 1);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->token, 0);
  EXPECT_TRUE(std::isfinite(result->logprob));
}

TEST(Sampler, MaskedTokensAreNeverDrawn) {
  Sampler sampler;
  const Row row = {1.0F, 9.0F, 8.0F, 0.5F};
  EXPECT_EQ(draw(sampler, row, greedy(), 0, nullptr, -1, {1})->token, 2);
  SamplingParams params;
  for (const std::int32_t top_k : {0, 3}) {
    for (const float min_p : {0.0F, 1e-6F}) {
      for (const float top_p : {1.0F, 0.99F}) {
        params.top_k = top_k;
        params.min_p = min_p;
        params.top_p = top_p;
        for (int position = 0; position < 300; ++position) {
          const std::int32_t token = draw(sampler, row, params, position, nullptr, -1, {1, 2})->token;
          ASSERT_TRUE(token == 0 || token == 3);
        }
      }
    }
  }
  const auto result = draw(sampler, row, params, 0, nullptr, -1, {0, 1, 2, 3});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().where, "min_tokens");
}

TEST(Sampler, RowsThatAreNotNumbersAreErrors) {
  Sampler sampler;
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    Row row = random_row(500, 1, 1.0);
    row[321] = bad;
    row[400] = bad;
    for (const float temperature : {0.0F, 1.0F}) {
      SamplingParams params;
      params.temperature = temperature;
      const auto result = draw(sampler, row, params, 77);
      ASSERT_FALSE(result.ok());
      EXPECT_EQ(result.error().code, ErrorCode::kInternal);
      EXPECT_NE(result.error().message.find("token id 321"), std::string::npos) << result.error().message;
      EXPECT_NE(result.error().message.find("position 77"), std::string::npos) << result.error().message;
    }
    EXPECT_FALSE(sampler.logprob(row, 1, 5).ok());
  }
}

// The large-vocabulary paths, against the plain ones: the same set, whatever the road.
TEST(Sampler, LargeFlatNucleusIsTheExactOne) {
  const Row row = random_row(20000, 3, 0.5);
  SamplingParams params;
  params.top_p = 0.9F;
  const std::vector<long double> exact = exact_distribution(row, params);
  const auto kept = std::count_if(exact.begin(), exact.end(), [](long double p) { return p > 0.0L; });
  ASSERT_GT(kept, 2500);  // far beyond the guess and the sort limit
  Sampler sampler;
  std::vector<bool> seen(row.size(), false);
  for (int position = 0; position < 3000; ++position) {
    const auto token = static_cast<std::size_t>(draw(sampler, row, params, position)->token);
    ASSERT_GT(exact[token], 0.0L);
    seen[token] = true;
  }
  // Draws reach the whole nucleus, also near its end.
  std::vector<std::size_t> members;
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (exact[i] > 0.0L) members.push_back(i);
  }
  std::sort(members.begin(), members.end(), [&](auto a, auto b) { return row[a] < row[b]; });
  const auto lowest_tenth = static_cast<std::ptrdiff_t>(members.size() / 10);
  EXPECT_GT(std::count_if(members.begin(), members.begin() + lowest_tenth, [&](auto i) { return seen[i]; }), 50);
}

TEST(Sampler, TheSameDrawAgainIsTheSameToken) {
  const Row row = random_row(2000, 21, 1.0);
  SamplingParams params;
  params.seed = 99;
  Sampler one;
  std::vector<std::int32_t> forward;
  for (int position = 0; position < 100; ++position) forward.push_back(draw(one, row, params, position)->token);
  Sampler other;
  for (int position = 99; position >= 0; --position) {
    EXPECT_EQ(draw(other, row, params, position)->token, forward[static_cast<std::size_t>(position)]);
  }
  params.stream = 1;
  int equal = 0;
  for (int position = 0; position < 100; ++position) {
    if (draw(one, row, params, position)->token == forward[static_cast<std::size_t>(position)]) ++equal;
  }
  EXPECT_LT(equal, 20);
}

}  // namespace
}  // namespace sterling::engine
