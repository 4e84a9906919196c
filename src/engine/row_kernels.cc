#include "engine/row_kernels.h"

#include <limits>

#include "engine/real_math.h"

// One template per loop, compiled for each width under a target attribute. Everything that it calls is forced inline, so no function
// compiled for a newer CPU can be picked by the linker for the rest of the program.
#define STERLING_INLINE __attribute__((always_inline)) inline

namespace sterling::engine {
namespace {

template <std::size_t kBytes>
struct Vectors {
  typedef float Floats __attribute__((vector_size(kBytes)));
  typedef float HalfFloats __attribute__((vector_size(kBytes / 2)));  // as many as there are doubles
  typedef double Doubles __attribute__((vector_size(kBytes)));
  static constexpr std::size_t kFloats = kBytes / sizeof(float);
  static constexpr std::size_t kDoubles = kBytes / sizeof(double);
};

// The largest of 16 lanes. max is exact, so its order is free.
STERLING_INLINE float max_of_lanes(const void* lanes) {
  using Quad = Vectors<16>::Floats;
  Quad quads[4];
  __builtin_memcpy(quads, lanes, sizeof(quads));
  const Quad a = quads[0] > quads[1] ? quads[0] : quads[1];
  const Quad b = quads[2] > quads[3] ? quads[2] : quads[3];
  const Quad c = a > b ? a : b;
  const float d = c[0] > c[1] ? c[0] : c[1];
  const float e = c[2] > c[3] ? c[2] : c[3];
  return d > e ? d : e;
}

template <std::size_t kBytes>
STERLING_INLINE bool scan_blocks(const float* x, std::size_t blocks, float* maxima) {
  using V = Vectors<kBytes>;
  constexpr std::size_t kChains = 64 / kBytes;  // 16 lanes at every width
  const typename V::Floats lowest = typename V::Floats{} - std::numeric_limits<float>::infinity();
  typename V::Floats odd[kChains] = {};  // x - x is 0 for finite x and NaN for the rest, and NaN stays
  for (std::size_t b = 0; b < blocks; ++b, x += kRowBlock) {
    typename V::Floats best[kChains];
    for (std::size_t c = 0; c < kChains; ++c) best[c] = lowest;
    for (std::size_t at = 0; at < kRowBlock; at += 16) {
      for (std::size_t c = 0; c < kChains; ++c) {
        typename V::Floats value;
        __builtin_memcpy(&value, x + at + c * V::kFloats, kBytes);
        best[c] = value > best[c] ? value : best[c];
        odd[c] += value - value;
      }
    }
    maxima[b] = max_of_lanes(best);
  }
  bool finite = true;
  for (std::size_t c = 0; c < kChains; ++c) {
    for (std::size_t i = 0; i < V::kFloats; ++i) finite = finite && odd[c][i] == 0.0F;
  }
  return finite;
}

template <std::size_t kBytes>
STERLING_INLINE void sum_blocks(const float* x, std::size_t blocks, double max, double inverse_temperature,
                                double* sums) {
  using V = Vectors<kBytes>;
  constexpr std::size_t kChains = kSumLanes / V::kDoubles;
  for (std::size_t b = 0; b < blocks; ++b, x += kRowBlock) {
    typename V::Doubles total[kChains] = {};
    for (std::size_t at = 0; at < kRowBlock; at += kSumLanes) {
      for (std::size_t c = 0; c < kChains; ++c) {
        typename V::HalfFloats logits;
        __builtin_memcpy(&logits, x + at + c * V::kDoubles, kBytes / 2);
        typename V::Doubles value = (__builtin_convertvector(logits, typename V::Doubles) - max) * inverse_temperature;
        exp_nonpositive_in_place(value);
        total[c] += value;
      }
    }
    double lanes[kSumLanes];
    __builtin_memcpy(lanes, total, sizeof(lanes));
    sums[b] = merge_lanes(lanes);
  }
}

bool scan_16(const float* x, std::size_t blocks, float* maxima) {
  return scan_blocks<16>(x, blocks, maxima);
}
void sum_16(const float* x, std::size_t blocks, double max, double inverse_temperature, double* sums) {
  sum_blocks<16>(x, blocks, max, inverse_temperature, sums);
}
constexpr RowKernels kBaseline{"baseline", scan_16, sum_16};

#if defined(__x86_64__)
__attribute__((target("avx2"))) bool scan_32(const float* x, std::size_t blocks, float* maxima) {
  return scan_blocks<32>(x, blocks, maxima);
}
__attribute__((target("avx2"))) void sum_32(const float* x, std::size_t blocks, double max, double inverse_temperature,
                                            double* sums) {
  sum_blocks<32>(x, blocks, max, inverse_temperature, sums);
}
constexpr RowKernels kAvx2{"avx2", scan_32, sum_32};

__attribute__((target("avx512f"))) bool scan_64(const float* x, std::size_t blocks, float* maxima) {
  return scan_blocks<64>(x, blocks, maxima);
}
__attribute__((target("avx512f"))) void sum_64(const float* x, std::size_t blocks, double max,
                                               double inverse_temperature, double* sums) {
  sum_blocks<64>(x, blocks, max, inverse_temperature, sums);
}
constexpr RowKernels kAvx512{"avx512", scan_64, sum_64};
#endif

}  // namespace

std::vector<const RowKernels*> available_row_kernels() {
  std::vector<const RowKernels*> result{&kBaseline};
#if defined(__x86_64__)
  // The compiler's run-time library also asks whether the operating system saves these registers.
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2")) result.push_back(&kAvx2);
  if (__builtin_cpu_supports("avx512f")) result.push_back(&kAvx512);
#endif
  return result;
}

}  // namespace sterling::engine
