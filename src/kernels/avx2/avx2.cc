// AVX2 and FMA: 16 registers of 8 lanes.
#include <immintrin.h>

#include "kernels/tiers.h"

namespace sterling::kernels {
namespace {

#include "kernels/avx2/vec.inl"
// After vec.inl.
#include "kernels/avx2/kv_vec.inl"

constexpr char kTierName[] = "avx2";
// 6 rows x 1 panel = 12 accumulators, 2 weights, 1 broadcast.
constexpr int kRowTile = 6;
constexpr int columns_of(int rows) {
  return rows == 1 ? 4 : rows == 2 ? 2 : 1;
}
constexpr int tiles_of(int rows) {
  return columns_of(rows);
}

#include "kernels/generic/all.inl"

using Bf16 = FmaBf16;

#include "kernels/generic/table.inl"

}  // namespace

const KernelTable* avx2_table() {
  return &kTable;
}

}  // namespace sterling::kernels
