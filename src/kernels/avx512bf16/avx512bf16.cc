// AVX-512 with the BF16 dot product: VDPBF16PS computes acc + odd + even per lane with the roundings of the canonical chain. That is
// measured, not documented, so dispatch.h probes it on every host before this tier may run.
#include <immintrin.h>

#include "kernels/tiers.h"

namespace sterling::kernels {
namespace {

#include "kernels/avx512/vec.inl"
// After vec.inl.
#include "kernels/avx512/kv_vec.inl"

constexpr char kTierName[] = "avx512bf16";

#include "kernels/avx512/tile.inl"
#include "kernels/generic/all.inl"

// One slot is a pair, the even element in the low half.
struct Bf16 {
  using X = uint32_t;
  using W = __m512i;
  static constexpr int kSteps = 1;
  static constexpr int kPairBytes = 64;
  static constexpr size_t kRunPairs = 0;
  static constexpr size_t kBlockPairs = 512;
  static constexpr bool kRoundsToBf16 = true;
  static W load(const char* w, int) { return _mm512_loadu_si512(w); }
  static W from_pair(B pair, int) { return pair; }
  static W broadcast(const X* x) {
    W slot = _mm512_set1_epi32(static_cast<int>(*x));
#if defined(__clang__)
    // clang 16 crashes when it sees through a broadcast integer taken as BF16 pairs.
    asm("" : "+v"(slot));
#endif
    return slot;
  }
  static V multiply_add(W x, W w, V acc) {
    return _mm512_dpbf16_ps(acc, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(w));
  }
  // The conversion instruction rounds to nearest even and flushes subnormals whatever MXCSR says, and quiets NaN: v_round_bf16.
  static V round(V v) {
    const __m256i halves = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }
  // v holds BF16 values in FP32 form: drop the low halves and put neighbours together.
  static void scatter(X* target, size_t rows, V v, int pairs) {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i joined =
        _mm512_mask_blend_epi16(0xaaaaaaaau, _mm512_srli_epi64(bits, 16), _mm512_srli_epi64(bits, 32));
    const __m256i slots = _mm512_cvtepi64_epi32(joined);
    if (rows == 1) {
      _mm256_mask_storeu_epi32(target, static_cast<__mmask8>((1u << pairs) - 1u), slots);
      return;
    }
    alignas(32) uint32_t lanes[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), slots);
    for (int i = 0; i < pairs; ++i) target[static_cast<size_t>(i) * rows] = lanes[i];
  }
};

#include "kernels/generic/table.inl"

}  // namespace

const KernelTable* avx512bf16_table() {
  return &kTable;
}

}  // namespace sterling::kernels
