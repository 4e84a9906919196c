// What a precision choice costs, in numbers: two distributions over the vocabulary against each other at every position of a prompt, and what
// many positions come to. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace sterling::lab {

// One position of a prompt. Natural logarithms (nats).
struct PositionCost {
  double kl =
      0.0;  // of the choice from the reference, KL(reference || choice); infinity where the choice holds NaN or infinity
  double reference_logprob = 0.0;  // of the token that follows in the prompt; NaN at the last position
  double choice_logprob = 0.0;
  float reference_margin = 0.0F;  // best logit minus the second best: a small one flips easily
  std::int32_t reference_top = 0;
  std::int32_t choice_top = 0;  // -1: no finite best
  std::int32_t position = 0;    // tokens before its own

  bool flipped() const { return reference_top != choice_top; }
};

// Log-softmax and sums in double over FP32 logits; equal logits give exactly 0. Sums below 0 by rounding (about 1e-15) count as 0. Among equal
// logits the lowest id is the best. The reference must be finite.
PositionCost compare_logits(std::span<const float> reference, std::span<const float> choice,
                            std::optional<std::int32_t> next_token);

// Index of the largest, the lowest among equals.
std::int32_t best_token(std::span<const float> logits);
// Largest minus second largest; 0 for fewer than two.
float best_margin(std::span<const float> logits);

// The smallest value that at least `fraction` of all values don't exceed (nearest rank). `sorted` is ascending and not empty.
double percentile(std::span<const double> sorted, double fraction);

struct CostSummary {
  std::int64_t positions = 0;
  double mean_kl = 0.0, p95_kl = 0.0, p999_kl = 0.0, max_kl = 0.0;
  std::int64_t flips = 0;                        // positions where another token is the most probable
  std::int64_t scored = 0;                       // positions whose next token is known
  double reference_nll = 0.0, choice_nll = 0.0;  // mean negative log probability of these

  double flip_rate() const {
    return positions == 0 ? 0.0 : static_cast<double>(flips) / static_cast<double>(positions);
  }
  double reference_perplexity() const;
  double choice_perplexity() const;
  // (choice - reference) / reference. Where text is unpredictable a plain difference says nothing.
  double perplexity_change() const;
};
CostSummary summarise(std::span<const PositionCost> rows);

// Positions [from, to): how much context a prediction had before its own token.
struct DepthBin {
  std::int64_t from = 0;
  std::int64_t to = 0;
};
// [0, 256), [256, 1k), [1k, 4k), [4k, 16k) and so on, the last one cut at `limit` (at least 1).
std::vector<DepthBin> depth_bins(std::int64_t limit);

}  // namespace sterling::lab
