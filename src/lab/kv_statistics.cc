#include "lab/kv_statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "quant/encode.h"
#include "quant/float_codes.h"

namespace sterling::lab {
namespace {

constexpr int kMseSteps = 25;

int step_of(float size) {
  int exponent = 0;
  const float mantissa = std::frexp(size, &exponent);  // [0.5, 1): the octave is exponent - 1
  const auto within =
      static_cast<int>(std::log2(static_cast<double>(mantissa) * 2.0) * MagnitudeHistogram::kStepsPerOctave);
  const int step = (exponent - 1 - MagnitudeHistogram::kLowest) * MagnitudeHistogram::kStepsPerOctave +
                   std::clamp(within, 0, MagnitudeHistogram::kStepsPerOctave - 1);
  return std::clamp(step, 0, MagnitudeHistogram::kStepsPerOctave * MagnitudeHistogram::kOctaves - 1);
}

// Not subnormal, so that kernels that flush read it as it is.
float usable(double scale) {
  return static_cast<float>(std::clamp(scale, 1e-30, 1e30));
}

}  // namespace

void MagnitudeHistogram::add(float x) {
  ++count_;
  const float size = std::fabs(x);
  if (size == 0.0F) {
    ++zeros_;
    return;
  }
  squares_ += static_cast<double>(size) * static_cast<double>(size);
  largest_ = std::max(largest_, size);
  ++steps_[static_cast<std::size_t>(step_of(size))];
}

void MagnitudeHistogram::merge(const MagnitudeHistogram& other) {
  for (std::size_t i = 0; i < steps_.size(); ++i) steps_[i] += other.steps_[i];
  count_ += other.count_;
  zeros_ += other.zeros_;
  largest_ = std::max(largest_, other.largest_);
  squares_ += other.squares_;
}

double MagnitudeHistogram::rms() const {
  return count_ > 0 ? std::sqrt(squares_ / static_cast<double>(count_)) : 0.0;
}

float MagnitudeHistogram::percentile(double share) const {
  const double wanted = share * static_cast<double>(count_);
  auto seen = static_cast<double>(zeros_);
  if (seen >= wanted) return 0.0F;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    seen += static_cast<double>(steps_[i]);
    if (seen < wanted) continue;
    const double edge = std::exp2(kLowest + static_cast<double>(i + 1) / kStepsPerOctave);
    return std::min(largest_, static_cast<float>(edge));
  }
  return largest_;
}

std::int64_t MagnitudeHistogram::octave(int octave) const {
  if (octave < kLowest || octave >= kLowest + kOctaves) return 0;
  const auto begin = static_cast<std::size_t>((octave - kLowest) * kStepsPerOctave);
  std::int64_t sum = 0;
  for (std::size_t i = begin; i < begin + kStepsPerOctave; ++i) sum += steps_[i];
  return sum;
}

void add_magnitudes(std::span<const float> values, std::int64_t head_dim, SideMagnitudes& side) {
  const auto dim = static_cast<std::size_t>(head_dim);
  const std::size_t per_head = values.size() / side.heads.size();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float x = values[i];
    if (!std::isfinite(x)) {
      ++side.non_finite;
      continue;
    }
    const std::size_t head = i / per_head;
    side.heads[head].add(x);
    float& channel = side.channels[head * dim + i % dim];
    channel = std::max(channel, std::fabs(x));
  }
}

void add_cost(plan::KvType type, std::span<const float> values, ScaleCost& cost) {
  const bool e5m2 = type == plan::KvType::kFp8E5m2;
  // Half a step beyond the largest value rounding leaves the type.
  const float clips = e5m2 ? 61440.0F : 464.0F;
  for (const float x : values) {
    const float quotient = x / cost.scale;
    const std::uint8_t code = e5m2 ? quant::float_to_e5m2(quotient) : quant::float_to_e4m3(quotient);
    const float back = (e5m2 ? quant::e5m2_to_float(code) : quant::e4m3_to_float(code)) * cost.scale;
    const double error = static_cast<double>(back) - static_cast<double>(x);
    cost.squared_error += error * error;
    cost.squares += static_cast<double>(x) * static_cast<double>(x);
    cost.clipped += std::fabs(quotient) >= clips ? 1 : 0;
    cost.underflowed += x != 0.0F && (code & 0x7f) == 0 ? 1 : 0;
  }
  cost.count += static_cast<std::int64_t>(values.size());
}

std::string_view scale_method_name(ScaleMethod method) {
  switch (method) {
    case ScaleMethod::kAmax: return "amax";
    case ScaleMethod::kPercentile: return "percentile";
    case ScaleMethod::kMse: return "mse";
  }
  return "unknown";
}

float largest_code(plan::KvType type) {
  return type == plan::KvType::kFp8E5m2 ? 57344.0F : 448.0F;
}

std::vector<float> candidate_scales(plan::KvType type, ScaleMethod method, double percentile, double margin,
                                    const MagnitudeHistogram& magnitudes) {
  const float top =
      method == ScaleMethod::kPercentile ? magnitudes.percentile(percentile / 100.0) : magnitudes.largest();
  // Nothing but zeros has no scale of its own.
  if (top == 0.0F) return {1.0F};
  const double whole = static_cast<double>(top) * margin / static_cast<double>(largest_code(type));
  std::vector<float> scales = {usable(whole)};
  if (method != ScaleMethod::kMse) return scales;
  for (int i = 1; i < kMseSteps; ++i) scales.push_back(usable(whole * std::exp2(-i / 8.0)));
  return scales;
}

}  // namespace sterling::lab
