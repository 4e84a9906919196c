// AVX2 fused multiply-add; see peak.h.
#if defined(__x86_64__)
#include <immintrin.h>

#include "peak.h"

namespace sterling::bench {

double peak_avx2_fma(long iterations) {
  __m256 a0 = _mm256_setzero_ps(), a1 = a0, a2 = a0, a3 = a0, a4 = a0, a5 = a0, a6 = a0, a7 = a0, a8 = a0, a9 = a0,
         a10 = a0, a11 = a0;
  const __m256 x = _mm256_set1_ps(0.5F);
  for (long i = 0; i < iterations; ++i) {
    // Written out: twelve chains hide the latency, and the compiler can neither merge nor drop them.
    asm volatile(
        "vfmadd231ps %12, %12, %0\n"
        "vfmadd231ps %12, %12, %1\n"
        "vfmadd231ps %12, %12, %2\n"
        "vfmadd231ps %12, %12, %3\n"
        "vfmadd231ps %12, %12, %4\n"
        "vfmadd231ps %12, %12, %5\n"
        "vfmadd231ps %12, %12, %6\n"
        "vfmadd231ps %12, %12, %7\n"
        "vfmadd231ps %12, %12, %8\n"
        "vfmadd231ps %12, %12, %9\n"
        "vfmadd231ps %12, %12, %10\n"
        "vfmadd231ps %12, %12, %11\n"
        : "+x"(a0), "+x"(a1), "+x"(a2), "+x"(a3), "+x"(a4), "+x"(a5), "+x"(a6), "+x"(a7), "+x"(a8), "+x"(a9), "+x"(a10),
          "+x"(a11)
        : "x"(x));
  }
  return static_cast<double>(iterations) * 12 * 16;
}

}  // namespace sterling::bench
#endif
