#include "engine/sampler.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>

#include <fmt/format.h>

#include "base/check.h"
#include "engine/philox.h"
#include "engine/real_math.h"

namespace sterling::engine {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();
// Nuclei of language models are small: this many of the best tokens are tried before the whole row is gathered.
constexpr std::int32_t kNucleusGuess = 256;
// Above this many candidates, keep_top_p() narrows by buckets instead of sorting them all.
constexpr std::size_t kSortLimit = 2048;

}  // namespace

bool uses_history(const SamplingParams& params) {
  return params.repetition_penalty != 1.0F || params.frequency_penalty != 0.0F || params.presence_penalty != 0.0F;
}

Status Sampler::scan_raw(std::span<const float> row, std::int32_t position) {
  if (scan_.scan(row)) return {};
  const std::int32_t token = scan_.first_not_finite();
  return make_error(ErrorCode::kInternal,
                    fmt::format("the model's logits for position {} hold {} at token id {}; finite values are needed",
                                position, row[static_cast<std::size_t>(token)], token));
}

Expected<float> Sampler::logprob(std::span<const float> row, std::int32_t token, std::int32_t position) {
  if (const Status status = scan_raw(row, position); !status.ok()) return status.error();
  const double log_sum = log_positive(scan_.sum_exp(1.0));
  const double logit = row[static_cast<std::size_t>(token)];
  return static_cast<float>((logit - static_cast<double>(scan_.max())) - log_sum);
}

Expected<DrawResult> Sampler::draw(std::span<float> row, const DrawRequest& request) {
  STERLING_CHECK(request.params != nullptr && (request.history != nullptr || !uses_history(*request.params)));
  if (const Status status = scan_raw(row, request.position); !status.ok()) return status.error();

  // Log-probabilities are of the model's own distribution, so they come before anything changes the row.
  DrawResult result;
  const double raw_max = scan_.max();
  double log_sum = 0.0;
  if (request.top_logprobs >= 0) {
    log_sum = log_positive(scan_.sum_exp(1.0));
    scan_.best(request.top_logprobs, ranked_);
    result.top.reserve(ranked_.size());
    for (const RankedLogit& best : ranked_) {
      result.top.push_back({best.token, static_cast<float>((static_cast<double>(best.logit) - raw_max) - log_sum)});
    }
  }

  if (modify(row, request)) {
    scan_.scan(row);
    if (scan_.max() == kMasked) {
      return make_error(ErrorCode::kInvalidArgument,
                        "min_tokens forbids every token of the vocabulary: all of them are stop tokens", "min_tokens");
    }
  }
  result.token = request.params->temperature == 0.0F ? scan_.argmax() : choose(request);
  if (request.top_logprobs >= 0) {
    const double logit = raw_logit(row, result.token);
    result.logprob = static_cast<float>((logit - raw_max) - log_sum);
  }
  return result;
}

// Values saturate at the largest finite float, so that an absurd bias or penalty can't make an infinity of its own.
void Sampler::set(std::span<float> row, std::int32_t token, double value) {
  float& place = row[static_cast<std::size_t>(token)];
  undo_.push_back({token, place});
  constexpr double kLimit = std::numeric_limits<float>::max();
  place = static_cast<float>(std::clamp(value, -kLimit, kLimit));
}

// Applies bias, penalties and masks; true when the row changed.
bool Sampler::modify(std::span<float> row, const DrawRequest& request) {
  const SamplingParams& params = *request.params;
  undo_.clear();
  for (const auto& [token, bias] : params.logit_bias) {
    set(row, token, static_cast<double>(row[static_cast<std::size_t>(token)]) + static_cast<double>(bias));
  }
  if (uses_history(params)) {
    const double repetition = params.repetition_penalty;
    for (const TokenHistory::Entry& entry : request.history->entries()) {
      double value = row[static_cast<std::size_t>(entry.token)];
      value = value > 0.0 ? value / repetition : value * repetition;
      if (entry.output_count > 0) {
        value -= static_cast<double>(params.frequency_penalty) * entry.output_count;
        value -= static_cast<double>(params.presence_penalty);
      }
      set(row, entry.token, value);
    }
  }
  for (const std::int32_t token : request.masked) {
    float& place = row[static_cast<std::size_t>(token)];
    undo_.push_back({token, place});
    place = kMasked;
  }
  return !undo_.empty();
}

float Sampler::raw_logit(std::span<const float> row, std::int32_t token) const {
  const auto first =
      std::find_if(undo_.begin(), undo_.end(), [token](const RankedLogit& u) { return u.token == token; });
  return first == undo_.end() ? row[static_cast<std::size_t>(token)] : first->logit;
}

std::int32_t Sampler::choose(const DrawRequest& request) {
  const SamplingParams& params = *request.params;
  const double inverse_temperature = 1.0 / static_cast<double>(params.temperature);
  const double uniform = uniform_draw(params.seed, params.stream, request.position);
  const double min_weight = params.min_p;  // the best token's weight is 1
  const double top_p = params.top_p;
  const auto vocab_size = static_cast<std::int32_t>(scan_.row().size());

  if (params.top_k > 0 && params.top_k < vocab_size) {
    scan_.best(params.top_k, ranked_);
    take_candidates(inverse_temperature);
    if (min_weight > 0.0) std::erase_if(candidates_, [=](const Candidate& c) { return c.weight < min_weight; });
  } else if (min_weight > 0.0) {
    gather_above(inverse_temperature, min_weight);
  } else if (top_p < 1.0) {
    if (gather_nucleus(inverse_temperature, top_p)) return draw_candidate(uniform);
  } else {
    return draw_from_row(inverse_temperature, uniform);
  }
  if (top_p < 1.0) keep_top_p(inverse_temperature, top_p);
  return draw_candidate(uniform);
}

// ranked_ → candidates_. A token whose weight vanishes can't be drawn and is left out.
void Sampler::take_candidates(double inverse_temperature) {
  const double max = scan_.max();
  candidates_.clear();
  for (const RankedLogit& ranked : ranked_) {
    const double weight = exp_nonpositive((static_cast<double>(ranked.logit) - max) * inverse_temperature);
    if (weight > 0.0) candidates_.push_back({ranked.token, ranked.logit, weight});
  }
}

void Sampler::gather_above(double inverse_temperature, double min_weight) {
  const double max = scan_.max();
  candidates_.clear();
  for (std::int32_t b = 0; b < scan_.blocks(); ++b) {
    // exp is monotone, but for its last bit: a block is skipped only where its best token is clearly below.
    const double best = exp_nonpositive((static_cast<double>(scan_.block_max(b)) - max) * inverse_temperature);
    if (best < min_weight * (1.0 - 0x1p-40)) continue;
    const std::span<const float> values = scan_.block(b);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double weight = exp_nonpositive((static_cast<double>(values[i]) - max) * inverse_temperature);
      if (weight < min_weight || weight == 0.0) continue;
      candidates_.push_back({b * kRowBlock + static_cast<std::int32_t>(i), values[i], weight});
    }
  }
}

// candidates_ becomes the nucleus of the whole row and true is returned, or, where the best few hundred do not hold the mass,
// every token of the row and false.
bool Sampler::gather_nucleus(double inverse_temperature, double top_p) {
  const double wanted = top_p * scan_.sum_exp(inverse_temperature);
  scan_.best(kNucleusGuess, ranked_);
  take_candidates(inverse_temperature);
  double mass = 0.0;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    mass += candidates_[i].weight;
    if (mass >= wanted) {
      candidates_.resize(i + 1);
      return true;
    }
  }
  gather_above(inverse_temperature, 0.0);
  return false;
}

// Keeps the shortest rank-ordered prefix of candidates_ whose weight reaches top_p of theirs all.
void Sampler::keep_top_p(double inverse_temperature, double top_p) {
  const auto by_rank = [](const Candidate& a, const Candidate& b) {
    return ranks_before({a.token, a.logit}, {b.token, b.logit});
  };
  double total = 0.0;
  for (const Candidate& candidate : candidates_) total += candidate.weight;
  const double wanted = top_p * total;

  // Those that must be sorted to find the last one kept: all, or, where that would take milliseconds, the bucket that it lies in.
  double mass = 0.0;
  if (candidates_.size() <= kSortLimit) {
    sorted_ = candidates_;
  } else {
    mass = gather_cut_bucket(inverse_temperature, wanted);
  }
  std::sort(sorted_.begin(), sorted_.end(), by_rank);
  std::size_t last = 0;
  for (mass += sorted_[0].weight; mass < wanted && last + 1 < sorted_.size();) mass += sorted_[++last].weight;
  const Candidate cut = sorted_[last];
  std::erase_if(candidates_, [&](const Candidate& candidate) { return by_rank(cut, candidate); });
}

// Buckets of equal width in the exponent: their masses tell which one holds the cut. Its candidates go to sorted_; returned is the
// mass of those that rank before them all.
double Sampler::gather_cut_bucket(double inverse_temperature, double wanted) {
  constexpr std::size_t kBuckets = 2048;
  constexpr double kBucketsPerNat = 32.0;
  const double max = scan_.max();
  const auto bucket = [&](const Candidate& candidate) {
    const double depth = (max - static_cast<double>(candidate.logit)) * inverse_temperature * kBucketsPerNat;
    return depth < static_cast<double>(kBuckets - 1) ? static_cast<std::size_t>(depth) : kBuckets - 1;
  };
  std::array<double, kBuckets> masses{};
  for (const Candidate& candidate : candidates_) masses[bucket(candidate)] += candidate.weight;
  double before = 0.0;
  std::size_t cut = 0;
  std::size_t last_used = 0;
  for (std::size_t b = 0; b < kBuckets; ++b) {
    if (masses[b] > 0.0) last_used = b;
  }
  while (cut < last_used && before + masses[cut] < wanted) before += masses[cut++];
  STERLING_CHECK(masses[cut] > 0.0);  // the bucket before would have met `wanted`, and the first holds the best token
  sorted_.clear();
  for (const Candidate& candidate : candidates_) {
    if (bucket(candidate) == cut) sorted_.push_back(candidate);
  }
  return before;
}

std::int32_t Sampler::draw_candidate(double uniform) {
  const auto by_token = [](const Candidate& a, const Candidate& b) { return a.token < b.token; };
  if (!std::is_sorted(candidates_.begin(), candidates_.end(), by_token)) {
    std::sort(candidates_.begin(), candidates_.end(), by_token);
  }
  double total = 0.0;
  for (const Candidate& candidate : candidates_) total += candidate.weight;
  const double target = uniform * total;
  double mass = 0.0;
  for (const Candidate& candidate : candidates_) {
    mass += candidate.weight;
    if (mass > target) return candidate.token;
  }
  return candidates_.back().token;  // uniform * total rounded up to total
}

std::int32_t Sampler::draw_from_row(double inverse_temperature, double uniform) {
  const double target = uniform * scan_.sum_exp(inverse_temperature);
  const double max = scan_.max();
  const std::span<const double> sums = scan_.block_sums();
  double mass = 0.0;
  std::int32_t last = scan_.argmax();  // last token with weight, for when rounding leaves the target at the very end
  for (std::size_t b = 0; b < sums.size(); ++b) {
    const bool holds_target = mass + sums[b] > target;
    if (!holds_target && b + 1 < sums.size()) {
      mass += sums[b];
      continue;
    }
    const auto block = static_cast<std::int32_t>(b);
    const std::span<const float> values = scan_.block(block);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double weight = exp_nonpositive((static_cast<double>(values[i]) - max) * inverse_temperature);
      if (weight == 0.0) continue;
      mass += weight;
      last = block * kRowBlock + static_cast<std::int32_t>(i);
      if (mass > target) return last;
    }
    // The block's own sum was merged in another order and may exceed this one by a rounding error: its last token takes it.
    if (holds_target) return last;
  }
  return last;
}

}  // namespace sterling::engine
