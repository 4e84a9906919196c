// What passes into a KV cache, counted: the basis of scales. Two passes over the same values. The first finds magnitudes (a histogram of |x|,
// the largest value of every channel); scales are chosen from it; the second measures what candidate scales cost, value by value. Pure, in
// bounded memory.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "plan/kv_format.h"

namespace sterling::lab {

// Magnitudes in steps of 2^(1/16) from 2^-64 to 2^64; zeros apart. A percentile is exact to 4.4 %, and never above the largest value.
class MagnitudeHistogram {
 public:
  static constexpr int kStepsPerOctave = 16;
  static constexpr int kLowest = -64;  // octave
  static constexpr int kOctaves = 128;

  void add(float x);
  void merge(const MagnitudeHistogram& other);

  std::int64_t count() const { return count_; }
  std::int64_t zeros() const { return zeros_; }
  float largest() const { return largest_; }
  double rms() const;
  // The smallest edge of a step that at least `share` of all values do not exceed; the largest value for 1.
  float percentile(double share) const;
  // Values with 2^octave <= |x| < 2^(octave + 1).
  std::int64_t octave(int octave) const;

 private:
  std::vector<std::int64_t> steps_ = std::vector<std::int64_t>(static_cast<std::size_t>(kStepsPerOctave) * kOctaves);
  std::int64_t count_ = 0;
  std::int64_t zeros_ = 0;
  float largest_ = 0.0F;
  double squares_ = 0.0;
};

// K or V of one layer.
struct SideMagnitudes {
  std::vector<MagnitudeHistogram> heads;
  std::vector<float> channels;  // [heads][head_dim] largest |x|
  std::int64_t non_finite = 0;
};

// `values`: [heads][tokens][head_dim].
void add_magnitudes(std::span<const float> values, std::int64_t head_dim, SideMagnitudes& side);

// What storing values as codes of `type` with one scale does to them.
struct ScaleCost {
  float scale = 1.0F;
  double squared_error = 0.0;
  double squares = 0.0;  // of the values themselves
  std::int64_t count = 0, clipped = 0, underflowed = 0;

  // Mean squared error over mean square.
  double relative_error() const { return squares > 0.0 ? squared_error / squares : 0.0; }
};

// fp8_e4m3 or fp8_e5m2: rounds as the cache does.
void add_cost(plan::KvType type, std::span<const float> values, ScaleCost& cost);

enum class ScaleMethod { kAmax, kPercentile, kMse };
std::string_view scale_method_name(ScaleMethod method);  // "amax", "percentile", "mse"

// The largest finite value of an FP8 type.
float largest_code(plan::KvType type);

// Scales worth trying for values of this size, the first the one without clipping: it alone for kAmax and kPercentile, and for kMse 25 down to an eighth of
// it in steps of 2^(1/8). All finite, normal and positive. `margin` widens the range (1.0: as found).
std::vector<float> candidate_scales(plan::KvType type, ScaleMethod method, double percentile, double margin,
                                    const MagnitudeHistogram& magnitudes);

}  // namespace sterling::lab
