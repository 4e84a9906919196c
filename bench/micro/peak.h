// Register-only multiply-add loops: the roof that matrix products are judged against. Each returns the operations done (2 per
// multiply-add) after `iterations` rounds on twelve independent accumulators.
#pragma once

namespace sterling::bench {

double peak_avx2_fma(long iterations);
double peak_avx512_fma(long iterations);
double peak_avx512_dot(long iterations);

// The loop that belongs to a tier's instructions ("avx512bf16" → the dot product); null for "scalar".
using PeakLoop = double (*)(long);
PeakLoop peak_loop(const char* tier);

}  // namespace sterling::bench
