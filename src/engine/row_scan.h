// Passes over one row of logits: the maxima of its blocks, sums of exponentials, the k best. Everything here is a function of the
// row alone, in a fixed order of operations, so its bits do not depend on the CPU or on what else is in the batch.
//
// A vocabulary is long (248,320 in Qwen3.5) and a step is short, so the idea is to read the row once, keep the maximum of each
// block of 64, and then look only into blocks that can hold an answer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/row_kernels.h"

namespace sterling::engine {

struct RankedLogit {
  std::int32_t token = 0;
  float logit = 0.0F;
};

// Higher logit first; equal logits: lower id first. The order of everything that is called "best".
inline bool ranks_before(const RankedLogit& a, const RankedLogit& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

// Block maxima of one row; reused from row to row. Not thread-safe.
class RowScan {
 public:
  // With the fastest kernels of this CPU, or with given ones.
  RowScan() : kernels_(available_row_kernels().back()) {}
  explicit RowScan(const RowKernels& kernels) : kernels_(&kernels) {}

  // Reads `row`; keeps a reference to it until the next scan. False when a value is NaN or infinite (then only
  // first_not_finite() is meaningful, unless the caller put -infinity there to mask a token).
  bool scan(std::span<const float> row);
  // Lowest index of a NaN or infinity, or -1.
  std::int32_t first_not_finite() const;

  std::span<const float> row() const { return row_; }
  float max() const { return max_; }
  std::int32_t argmax() const;  // lowest index of max()
  std::int32_t blocks() const { return static_cast<std::int32_t>(maxima_.size()); }
  float block_max(std::int32_t block) const { return maxima_[static_cast<std::size_t>(block)]; }
  std::span<const float> block(std::int32_t block) const;

  // The k best tokens above -infinity in rank order (fewer if there are fewer).
  void best(std::int32_t k, std::vector<RankedLogit>& out);

  // Sum over the row of exp((x - max()) * inverse_temperature), block by block in order; the block sums stay in block_sums().
  double sum_exp(double inverse_temperature);
  std::span<const double> block_sums() const { return sums_; }

 private:
  const RowKernels* kernels_;
  std::span<const float> row_;
  float max_ = 0.0F;
  std::vector<float> maxima_;
  std::vector<double> sums_;
  std::vector<RankedLogit> heap_;
};

}  // namespace sterling::engine
