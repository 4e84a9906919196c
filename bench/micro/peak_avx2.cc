// AVX2 fused multiply-add; see peak.h.
#if defined(__x86_64__)
#include <immintrin.h>

#include "peak.h"
#include "peak_fma.h"

namespace sterling::bench {

double peak_avx2_fma(long iterations) {
  return peak_fma<__m256>(iterations);
}

}  // namespace sterling::bench
#endif
