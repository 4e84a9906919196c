#include "lab/audit_cost.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

namespace sterling::lab {
namespace {

std::vector<float> random_logits(std::size_t n, std::mt19937& engine, float spread) {
  std::normal_distribution<float> normal(0.0F, spread);
  std::vector<float> logits(n);
  for (float& value : logits) value = normal(engine);
  return logits;
}

// By the definition, in long double.
long double plain_kl(const std::vector<float>& p, const std::vector<float>& q) {
  const auto softmax = [](const std::vector<float>& logits) {
    long double sum = 0;
    std::vector<long double> out;
    for (const float x : logits) out.push_back(std::exp(static_cast<long double>(x)));
    for (const long double x : out) sum += x;
    for (long double& x : out) x /= sum;
    return out;
  };
  const auto a = softmax(p);
  const auto b = softmax(q);
  long double kl = 0;
  for (std::size_t i = 0; i < a.size(); ++i) kl += a[i] * std::log(a[i] / b[i]);
  return kl;
}

TEST(AuditCost, DivergenceAsDefined) {
  std::mt19937 engine(7);
  for (const float spread : {0.1F, 3.0F, 20.0F}) {
    const auto p = random_logits(997, engine, spread);
    auto q = p;
    std::normal_distribution<float> noise(0.0F, 0.05F * spread);
    for (float& value : q) value += noise(engine);
    const PositionCost cost = compare_logits(p, q, 11);
    EXPECT_NEAR(cost.kl, static_cast<double>(plain_kl(p, q)), 1e-12);
    EXPECT_GT(cost.kl, 0.0);
    EXPECT_EQ(cost.reference_top, std::max_element(p.begin(), p.end()) - p.begin());
    EXPECT_EQ(cost.choice_top, std::max_element(q.begin(), q.end()) - q.begin());
    long double sum = 0;
    for (const float x : q) sum += std::exp(static_cast<long double>(x));
    EXPECT_NEAR(cost.choice_logprob, static_cast<double>(static_cast<long double>(q[11]) - std::log(sum)), 1e-12);
    auto sorted = p;
    std::sort(sorted.rbegin(), sorted.rend());
    EXPECT_EQ(cost.reference_margin, sorted[0] - sorted[1]);
  }
}

TEST(AuditCost, EqualLogitsCostExactlyNothing) {
  std::mt19937 engine(8);
  const auto p = random_logits(5000, engine, 10.0F);
  const PositionCost cost = compare_logits(p, p, std::nullopt);
  EXPECT_EQ(cost.kl, 0.0);
  EXPECT_FALSE(cost.flipped());
  EXPECT_TRUE(std::isnan(cost.reference_logprob));
}

TEST(AuditCost, AShiftOfAllLogitsIsTheSameDistribution) {
  const std::vector<float> p = {1.0F, 2.0F, 4.0F};
  const std::vector<float> q = {101.0F, 102.0F, 104.0F};
  EXPECT_LT(compare_logits(p, q, 0).kl, 1e-13);
  EXPECT_NEAR(compare_logits(p, q, 0).choice_logprob, compare_logits(p, q, 0).reference_logprob, 1e-13);
}

TEST(AuditCost, HugeLogitsDoNotOverflowAndNansAreInfinitelyBad) {
  const std::vector<float> p = {3e4F, -3e4F, 0.0F};
  const std::vector<float> q = {-3e4F, 3e4F, 0.0F};
  EXPECT_DOUBLE_EQ(compare_logits(p, q, 0).kl, 6e4);
  const std::vector<float> broken = {0.0F, std::numeric_limits<float>::quiet_NaN(), 1.0F};
  const PositionCost cost = compare_logits(p, broken, 0);
  EXPECT_TRUE(std::isinf(cost.kl));
  EXPECT_TRUE(cost.flipped());
}

TEST(AuditCost, PercentilesByNearestRank) {
  std::vector<double> values(2000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i + 1);
  EXPECT_EQ(percentile(values, 0.95), 1900.0);
  EXPECT_EQ(percentile(values, 0.999), 1998.0);
  EXPECT_EQ(percentile(std::span(values).first(20), 0.95), 19.0);
  EXPECT_EQ(percentile(std::span(values).first(1), 0.999), 1.0);
}

TEST(AuditCost, SummaryAgainstALoop) {
  std::mt19937 engine(9);
  std::uniform_real_distribution<double> uniform(0.0, 1.0);
  std::vector<PositionCost> rows(1000);
  double total = 0.0;
  double reference = 0.0;
  double choice = 0.0;
  int flips = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].kl = uniform(engine);
    rows[i].reference_logprob = i + 1 == rows.size() ? std::numeric_limits<double>::quiet_NaN() : -uniform(engine);
    rows[i].choice_logprob = rows[i].reference_logprob * 1.5;
    rows[i].choice_top = i % 10 == 0 ? 1 : 0;
    total += rows[i].kl;
    flips += i % 10 == 0 ? 1 : 0;
    if (i + 1 < rows.size()) reference += rows[i].reference_logprob;
    if (i + 1 < rows.size()) choice += rows[i].choice_logprob;
  }
  const CostSummary summary = summarise(rows);
  EXPECT_NEAR(summary.mean_kl, total / 1000.0, 1e-12);
  EXPECT_EQ(summary.flips, flips);
  EXPECT_DOUBLE_EQ(summary.flip_rate(), 0.1);
  EXPECT_EQ(summary.scored, 999);
  EXPECT_NEAR(summary.reference_perplexity(), std::exp(-reference / 999.0), 1e-12);
  EXPECT_NEAR(summary.choice_perplexity(), std::exp(-choice / 999.0), 1e-12);
  std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.kl < b.kl; });
  EXPECT_EQ(summary.p95_kl, rows[949].kl);
  EXPECT_EQ(summary.p999_kl, rows[998].kl);
  EXPECT_EQ(summary.max_kl, rows[999].kl);
  EXPECT_EQ(summarise({}).positions, 0);
}

TEST(AuditCost, BinsGrowFourfoldUpToTheLimit) {
  const auto bins = depth_bins(40000);
  ASSERT_EQ(bins.size(), 5U);
  const std::int64_t edges[] = {0, 256, 1024, 4096, 16384, 40000};
  for (std::size_t i = 0; i < bins.size(); ++i) {
    EXPECT_EQ(bins[i].from, edges[i]);
    EXPECT_EQ(bins[i].to, edges[i + 1]);
  }
  EXPECT_EQ(depth_bins(256).size(), 1U);
  EXPECT_EQ(depth_bins(1).back().to, 1);
}

}  // namespace
}  // namespace sterling::lab
