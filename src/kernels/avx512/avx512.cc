// AVX-512 F, BW, DQ, VL: BF16 weights are widened to FP32 by a shift or a mask, and multiplied with FMA.
#include <immintrin.h>

#include "kernels/tiers.h"

namespace sterling::kernels {
namespace {

#include "kernels/avx512/vec.inl"
// After vec.inl.
#include "kernels/avx512/kv_vec.inl"

constexpr char kTierName[] = "avx512";

#include "kernels/avx512/tile.inl"
#include "kernels/generic/all.inl"

using Bf16 = FmaBf16;

#include "kernels/generic/table.inl"

}  // namespace

const KernelTable* avx512_table() {
  return &kTable;
}

}  // namespace sterling::kernels
