#include "peak.h"

#include <cstring>

namespace sterling::bench {

PeakLoop peak_loop(const char* tier) {
#if defined(__x86_64__)
  if (std::strcmp(tier, "avx2") == 0) return peak_avx2_fma;
  if (std::strcmp(tier, "avx512") == 0) return peak_avx512_fma;
  if (std::strcmp(tier, "avx512bf16") == 0) return peak_avx512_dot;
#endif
  (void)tier;
  return nullptr;
}

}  // namespace sterling::bench
