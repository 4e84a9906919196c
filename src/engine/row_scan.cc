#include "engine/row_scan.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "engine/real_math.h"

namespace sterling::engine {
namespace {

constexpr std::size_t kBlock = kRowBlock;
// Independent accumulators of a pass. They fix the order of additions; compilers map them to whatever vectors the target has.
constexpr std::size_t kMaxLanes = 16;
constexpr std::size_t kSumLanes = 8;
constexpr float kLowest = -std::numeric_limits<float>::infinity();

// True for NaN and both infinities.
inline bool not_finite(float x) {
  const float magnitude = x < 0.0F ? -x : x;
  return !(magnitude <= std::numeric_limits<float>::max());
}

struct BlockScan {
  float max = kLowest;
  bool finite = true;
};

// `x` has kBlock values.
BlockScan scan_block(const float* x) {
  float best[kMaxLanes];
  std::int32_t bad[kMaxLanes];
  for (std::size_t lane = 0; lane < kMaxLanes; ++lane) {
    best[lane] = kLowest;
    bad[lane] = 0;
  }
  for (std::size_t i = 0; i < kBlock; i += kMaxLanes) {
    for (std::size_t lane = 0; lane < kMaxLanes; ++lane) {
      const float value = x[i + lane];
      best[lane] = value > best[lane] ? value : best[lane];
      bad[lane] |= not_finite(value) ? 1 : 0;
    }
  }
  BlockScan result;
  std::int32_t any_bad = 0;
  for (std::size_t lane = 0; lane < kMaxLanes; ++lane) {
    result.max = best[lane] > result.max ? best[lane] : result.max;
    any_bad |= bad[lane];
  }
  result.finite = any_bad == 0;
  return result;
}

BlockScan scan_tail(std::span<const float> x) {
  BlockScan result;
  for (const float value : x) {
    result.max = value > result.max ? value : result.max;
    result.finite = result.finite && !not_finite(value);
  }
  return result;
}

// The sum of a full block and that of a tail follow one definition: value i goes to lane i mod 8, lanes are merged pairwise.
double merge_lanes(const double* lanes) {
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

double sum_block(const float* x, double max, double inverse_temperature) {
  double lanes[kSumLanes] = {};
  for (std::size_t i = 0; i < kBlock; i += kSumLanes) {
    for (std::size_t lane = 0; lane < kSumLanes; ++lane) {
      lanes[lane] += exp_nonpositive((static_cast<double>(x[i + lane]) - max) * inverse_temperature);
    }
  }
  return merge_lanes(lanes);
}

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
  bool finite = true;
  max_ = kLowest;
  for (std::size_t b = 0; b < maxima_.size(); ++b) {
    const BlockScan found = b < full ? scan_block(row.data() + b * kBlock) : scan_tail(row.subspan(b * kBlock));
    maxima_[b] = found.max;
    finite = finite && found.finite;
    max_ = found.max > max_ ? found.max : max_;
  }
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
  double total = 0.0;
  for (std::size_t b = 0; b < sums_.size(); ++b) {
    sums_[b] = b < full ? sum_block(row_.data() + b * kBlock, max_, inverse_temperature)
                        : sum_tail(row_.subspan(b * kBlock), max_, inverse_temperature);
    total += sums_[b];
  }
  return total;
}

}  // namespace sterling::engine
