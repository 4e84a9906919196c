// FP32 to the codes of quantised checkpoints: what `sterling quantize` writes and what tests decode again. Pure functions, thread-safe; they need IEEE arithmetic with
// subnormals (the flush-to-zero environment of the forward pass changes results for weights below 2^-126).
//
// Sources: OCP 8-bit Floating Point Specification 1.0, OCP Microscaling Formats 1.0; for NVFP4 the rule of NVIDIA Model-Optimizer's nvfp4_tensor.py, whose
// FP32 operations are repeated here one by one.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace sterling::quant {

inline constexpr float kE4m3Max = 448.0F;
inline constexpr float kE5m2Max = 57344.0F;
inline constexpr float kE2m1Max = 6.0F;
inline constexpr std::int64_t kNvfp4Group = 16;

// What happens to values that round beyond the largest finite one: that value, or the format's own answer (E4M3: NaN, E5M2: infinity).
enum class Overflow { kSaturate, kIeee };

// Nearest, ties to the even code. NaN keeps its sign and becomes 0x7f (E4M3) or 0x7e (E5M2); kSaturate takes infinity to the largest value.
std::uint8_t float_to_e4m3(float value, Overflow overflow = Overflow::kSaturate);
std::uint8_t float_to_e5m2(float value, Overflow overflow = Overflow::kSaturate);
// Four bits, the format has neither infinity nor NaN: saturates; NaN must not be passed.
std::uint8_t float_to_e2m1(float value);

// How a block's scale is chosen: from its largest element, or the scale with the least sum of squared errors near that one.
enum class ScaleSearch { kMax, kMse };

// NVFP4's scale of a whole tensor, largest / (6 * 448); 1 where that is 0 (nothing but zeros, or next to it).
float nvfp4_global_scale(float largest);

// E4M3 code of clamp(largest / (6 * global), 2^-9, 448); 1.0 where the quotient is 0.
std::uint8_t nvfp4_block_scale(float largest, float global);

// One block: 16 elements at `x` to 8 bytes of codes (element 2i in the low half of byte i). Returns the block's scale code.
// Elements are x / (scale * global) on the grid; a negative element keeps its sign also where it becomes 0, -0.0 does not.
std::uint8_t encode_nvfp4_block(const float* x, float global, ScaleSearch search, std::uint8_t* codes);

// FP8's scale of a tensor or block: largest / 448; 1 where that is 0.
float fp8_scale(float largest);

// e4m3(x / scale), saturating.
void encode_fp8(std::span<const float> x, float scale, std::uint8_t* codes);

// Largest magnitude; NaN or infinity when an element is.
float largest_magnitude(std::span<const float> x);

// What quantising did to a tensor. Sums are in double; merge parts in a fixed order and the result does not depend on threads.
struct QuantError {
  double max_abs = 0.0;
  double squared_error = 0.0;
  double squares = 0.0;
  std::int64_t elements = 0;

  void add(float original, double decoded);
  void merge(const QuantError& other);
  double relative_rms() const;  // sqrt(squared error / squares); 0 for a tensor of zeros
  double sqnr_db() const;       // 10 log10(squares / squared error); infinity when exact
};

}  // namespace sterling::quant
