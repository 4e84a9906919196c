#include "engine/row_scan.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "engine/real_math.h"

namespace sterling::engine {
namespace {

constexpr std::size_t kBlock = kRowBlock;
constexpr float kLowest = -std::numeric_limits<float>::infinity();

// True for NaN and both infinities.
inline bool not_finite(float x) {
  const float magnitude = x < 0.0F ? -x : x;
  return !(magnitude <= std::numeric_limits<float>::max());
}

// The last, shorter block, by the kernels' definition.
double sum_tail(std::span<const float> x, double max, double inverse_temperature) {
  double lanes[kSumLanes] = {};
  for (std::size_t i = 0; i < x.size(); ++i) {
    lanes[i % kSumLanes] += exp_nonpositive((static_cast<double>(x[i]) - max) * inverse_temperature);
  }
  return merge_lanes(lanes);
}

}  // namespace

std::span<const float> RowScan::block(std::int32_t block) const {
  const std::size_t first = static_cast<std::size_t>(block) * kBlock;
  return row_.subspan(first, std::min(kBlock, row_.size() - first));
}

bool RowScan::scan(std::span<const float> row) {
  row_ = row;
  maxima_.resize((row.size() + kBlock - 1) / kBlock);
  const std::size_t full = row.size() / kBlock;
  bool finite = kernels_->scan(row.data(), full, maxima_.data());
  if (full < maxima_.size()) {
    float& tail_max = maxima_[full];
    tail_max = kLowest;
    for (const float value : row.subspan(full * kBlock)) {
      tail_max = value > tail_max ? value : tail_max;
      finite = finite && !not_finite(value);
    }
  }
  max_ = kLowest;
  for (const float value : maxima_) max_ = value > max_ ? value : max_;
  return finite;
}

std::int32_t RowScan::first_not_finite() const {
  for (std::size_t i = 0; i < row_.size(); ++i) {
    if (not_finite(row_[i])) return static_cast<std::int32_t>(i);
  }
  return -1;
}

std::int32_t RowScan::argmax() const {
  for (std::int32_t b = 0; b < blocks(); ++b) {
    if (block_max(b) != max_) continue;
    const std::span<const float> values = block(b);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i] == max_) return b * kRowBlock + static_cast<std::int32_t>(i);
    }
  }
  return -1;  // an empty row
}

void RowScan::best(std::int32_t k, std::vector<RankedLogit>& out) {
  out.clear();
  if (k <= 0) return;
  const auto wanted = static_cast<std::size_t>(k);

  // The k best tokens lie in the k best blocks: a token elsewhere has k block maxima that rank before it.
  heap_.clear();  // a heap by ranks_before has the worst at its front
  for (std::int32_t b = 0; b < blocks(); ++b) {
    const RankedLogit candidate{b, block_max(b)};
    if (heap_.size() < wanted) {
      heap_.push_back(candidate);
      std::push_heap(heap_.begin(), heap_.end(), ranks_before);
    } else if (ranks_before(candidate, heap_.front())) {
      std::pop_heap(heap_.begin(), heap_.end(), ranks_before);
      heap_.back() = candidate;
      std::push_heap(heap_.begin(), heap_.end(), ranks_before);
    }
  }
  // With k blocks chosen, their least maximum is a bound that k tokens reach.
  const float bound = heap_.size() == wanted ? heap_.front().logit : kLowest;
  for (const RankedLogit& chosen : heap_) {
    const std::span<const float> values = block(chosen.token);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i] < bound || values[i] == kLowest) continue;
      out.push_back({chosen.token * kRowBlock + static_cast<std::int32_t>(i), values[i]});
    }
  }
  if (out.size() > wanted) {
    std::nth_element(out.begin(), out.begin() + (k - 1), out.end(), ranks_before);
    out.resize(wanted);
  }
  std::sort(out.begin(), out.end(), ranks_before);
}

double RowScan::sum_exp(double inverse_temperature) {
  sums_.resize(maxima_.size());
  const std::size_t full = row_.size() / kBlock;
  kernels_->sum_exp(row_.data(), full, max_, inverse_temperature, sums_.data());
  if (full < sums_.size()) sums_[full] = sum_tail(row_.subspan(full * kBlock), max_, inverse_temperature);
  double total = 0.0;
  for (const double sum : sums_) total += sum;
  return total;
}

}  // namespace sterling::engine
