// Rotary position embedding tables (Su et al. 2021), as Hugging Face computes them (modeling_rope_utils.py and the models' rotary
// classes): frequencies and angles in FP32, each step rounded where theirs is, because a reference in float64 still uses FP32 tables.
// No libm: the results are the same on every machine.
#pragma once

#include <cstdint>
#include <vector>

namespace sterling::kernels {

enum class RopeScaling { kNone, kLinear, kLlama3 };

struct RopeParams {
  double theta = 10000.0;       // > 0; used as FP32
  std::int32_t rotary_dim = 0;  // even
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;                     // linear, llama3
  double low_freq_factor = 1.0;            // llama3
  double high_freq_factor = 4.0;           // llama3
  std::int32_t original_max_position = 0;  // llama3
  std::vector<float>
      frequency_divisors;  // GGUF rope_freqs.weight, [rotary_dim / 2]; replaces the scaling when not empty
};

// [rotary_dim / 2] inverse frequencies, theta^(-2i / rotary_dim), scaled.
std::vector<float> rope_inv_freq(const RopeParams& params);

// cosines[i], sines[i] of the FP32 product position * inverse_frequencies[i], for i < half. Correct to 1 ulp, argument reduction
// included, for every product below 2^24 in magnitude; NaN for products that are not finite.
void rope_cos_sin(std::int32_t position, const float* inverse_frequencies, int half, float* cosines, float* sines);

// x^y for x > 0 in double, relative error below 1e-14 for results in the range of FP32.
double deterministic_pow(double x, double y);

}  // namespace sterling::kernels
