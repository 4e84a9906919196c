#include "lab/audit_cost.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace sterling::lab {
namespace {

// log of the sum of exp
double log_sum(std::span<const float> logits, double largest) {
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  return largest + std::log(sum);
}

bool all_finite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}

}  // namespace

std::int32_t best_token(std::span<const float> logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

float best_margin(std::span<const float> logits) {
  if (logits.size() < 2) return 0.0F;
  const auto best = static_cast<std::size_t>(best_token(logits));
  float second = -std::numeric_limits<float>::infinity();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (i != best) second = std::max(second, logits[i]);
  }
  return logits[best] - second;
}

PositionCost compare_logits(std::span<const float> reference, std::span<const float> choice,
                            std::optional<std::int32_t> next_token) {
  STERLING_CHECK(reference.size() == choice.size() && !reference.empty());
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  PositionCost cost;
  cost.reference_top = best_token(reference);
  cost.reference_margin = best_margin(reference);
  const double reference_sum =
      log_sum(reference, static_cast<double>(reference[static_cast<std::size_t>(cost.reference_top)]));
  const auto next = static_cast<std::size_t>(next_token.value_or(0));
  cost.reference_logprob = next_token ? static_cast<double>(reference[next]) - reference_sum : kNan;
  if (!all_finite(choice)) {
    cost.kl = kInfinity;
    cost.choice_logprob = next_token ? -kInfinity : kNan;
    cost.choice_top = -1;
    return cost;
  }
  cost.choice_top = best_token(choice);
  const double choice_sum = log_sum(choice, static_cast<double>(choice[static_cast<std::size_t>(cost.choice_top)]));
  cost.choice_logprob = next_token ? static_cast<double>(choice[next]) - choice_sum : kNan;
  // Sum of p (log p - log q), with both sums of exponentials taken out of it.
  double sum = 0.0;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    const double r = static_cast<double>(reference[i]);
    const double difference = r - static_cast<double>(choice[i]);
    if (difference != 0.0) sum += std::exp(r - reference_sum) * difference;
  }
  cost.kl = std::max(0.0, sum - reference_sum + choice_sum);
  return cost;
}

double percentile(std::span<const double> sorted, double fraction) {
  STERLING_CHECK(!sorted.empty());
  const auto count = static_cast<double>(sorted.size());
  const auto rank = static_cast<std::int64_t>(std::ceil(fraction * count - 1e-9));  // 0.95 * 20 is a little above 19
  return sorted[static_cast<std::size_t>(
      std::clamp<std::int64_t>(rank - 1, 0, static_cast<std::int64_t>(sorted.size()) - 1))];
}

double CostSummary::reference_perplexity() const {
  return std::exp(reference_nll);
}

double CostSummary::choice_perplexity() const {
  return std::exp(choice_nll);
}

double CostSummary::perplexity_change() const {
  return std::expm1(choice_nll - reference_nll);
}

CostSummary summarise(std::span<const PositionCost> rows) {
  CostSummary summary;
  summary.positions = static_cast<std::int64_t>(rows.size());
  if (rows.empty()) return summary;
  std::vector<double> sorted;
  sorted.reserve(rows.size());
  double total = 0.0;
  for (const PositionCost& row : rows) {
    sorted.push_back(row.kl);
    total += row.kl;
    summary.flips += row.flipped() ? 1 : 0;
    if (std::isnan(row.reference_logprob)) continue;
    ++summary.scored;
    summary.reference_nll -= row.reference_logprob;
    summary.choice_nll -= row.choice_logprob;
  }
  std::sort(sorted.begin(), sorted.end());
  summary.mean_kl = total / static_cast<double>(rows.size());
  summary.p95_kl = percentile(sorted, 0.95);
  summary.p999_kl = percentile(sorted, 0.999);
  summary.max_kl = sorted.back();
  if (summary.scored > 0) {
    summary.reference_nll /= static_cast<double>(summary.scored);
    summary.choice_nll /= static_cast<double>(summary.scored);
  }
  return summary;
}

std::vector<DepthBin> depth_bins(std::int64_t limit) {
  std::vector<DepthBin> bins;
  for (std::int64_t from = 0, to = 256; from < limit; from = to, to *= 4) bins.push_back({from, std::min(to, limit)});
  return bins;
}

}  // namespace sterling::lab
