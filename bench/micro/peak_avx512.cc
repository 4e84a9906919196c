// AVX-512 fused multiply-add; see peak.h.
#if defined(__x86_64__)
#include <immintrin.h>

#include "peak.h"

namespace sterling::bench {

double peak_avx512_fma(long iterations) {
  __m512 a0 = _mm512_setzero_ps(), a1 = a0, a2 = a0, a3 = a0, a4 = a0, a5 = a0, a6 = a0, a7 = a0, a8 = a0, a9 = a0,
         a10 = a0, a11 = a0;
  const __m512 x = _mm512_set1_ps(0.5F);
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
        : "+v"(a0), "+v"(a1), "+v"(a2), "+v"(a3), "+v"(a4), "+v"(a5), "+v"(a6), "+v"(a7), "+v"(a8), "+v"(a9), "+v"(a10),
          "+v"(a11)
        : "v"(x));
  }
  return static_cast<double>(iterations) * 12 * 32;
}

}  // namespace sterling::bench
#endif
