// The two loops over a whole row that cost something, for the vector widths of x86: 16, 32 and 64 bytes. All give the same bits: every
// addition has its fixed place, and only how many of them one instruction does differs. So which is used is a matter of speed alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sterling::engine {

inline constexpr std::int32_t kRowBlock = 64;

struct RowKernels {
  const char* name;

  // Reads `blocks` blocks of 64 values at x; maxima[b] is the largest of block b (NaN is passed over). True when all are finite.
  bool (*scan)(const float* x, std::size_t blocks, float* maxima);

  // sums[b] = sum over block b of exp((x - max) * inverse_temperature), where x <= max or x = -infinity. Value i of a block goes to lane
  // i mod 8; the lanes are merged by merge_lanes().
  void (*sum_exp)(const float* x, std::size_t blocks, double max, double inverse_temperature, double* sums);
};

inline constexpr std::size_t kSumLanes = 8;

inline double merge_lanes(const double* lanes) {
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

// Those that this CPU can run, slowest first; never empty.
std::vector<const RowKernels*> available_row_kernels();

}  // namespace sterling::engine
