// From one row of logits to one token, and log-probabilities. A pure function of (row, parameters, history, position): own
// arithmetic in a fixed order, a counter-based generator, no state from token to token.
//
// Order: logit_bias, repetition, frequency and presence penalties, masked tokens, temperature, top_k, min_p, top_p (its mass is
// measured within what top_k and min_p left). The draw inverts the cumulative weights of the kept tokens in ascending id.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"
#include "engine/row_scan.h"
#include "engine/token_history.h"

namespace sterling::engine {

// True where `params` need a TokenHistory.
bool uses_history(const SamplingParams& params);

struct DrawRequest {
  const SamplingParams* params = nullptr;
  const TokenHistory* history = nullptr;  // needed where uses_history(*params)
  std::span<const std::int32_t> masked;   // may not be drawn (stop ids before min_tokens); -infinity in effect
  std::int32_t position = 0;              // of the token to draw, in the sequence
  std::int32_t top_logprobs = -1;         // as in TokenRequest
};

struct DrawResult {
  std::int32_t token = 0;
  float logprob = 0.0F;
  std::vector<TokenLogprob> top;
};

// Holds scratch memory only. Not thread-safe.
class Sampler {
 public:
  // Overwrites `row` where bias, penalties or masks apply. kInternal: a NaN or infinity in the row (the message names the first and
  // the position). kInvalidArgument: every token is masked.
  Expected<DrawResult> draw(std::span<float> row, const DrawRequest& request);

  // log-softmax of the row at `token`, for a prompt token at `position`. Errors as in draw().
  Expected<float> logprob(std::span<const float> row, std::int32_t token, std::int32_t position);

 private:
  struct Candidate {
    std::int32_t token = 0;
    float logit = 0.0F;
    double weight = 0.0;  // exp((logit - max) / temperature), in (0, 1]
  };

  Status scan_raw(std::span<const float> row, std::int32_t position);
  bool modify(std::span<float> row, const DrawRequest& request);
  void set(std::span<float> row, std::int32_t token, double value);
  float raw_logit(std::span<const float> row, std::int32_t token) const;
  std::int32_t choose(const DrawRequest& request);
  bool gather_nucleus(double inverse_temperature, double top_p);
  void gather_above(double inverse_temperature, double min_weight);
  void take_candidates(double inverse_temperature);
  void keep_top_p(double inverse_temperature, double top_p);
  double gather_cut_bucket(double inverse_temperature, double wanted);
  std::int32_t draw_candidate(double uniform);
  std::int32_t draw_from_row(double inverse_temperature, double uniform);

  RowScan scan_;
  std::vector<RankedLogit> ranked_;
  std::vector<Candidate> candidates_;
  std::vector<Candidate> sorted_;
  std::vector<RankedLogit> undo_;  // what modify() overwrote, first values first
};

}  // namespace sterling::engine
