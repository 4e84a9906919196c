// For tests of kernels: tiers of this host, aligned arrays, hostile values, bit comparison, and the contract in plain loops.
//
// The loops in namespace naive follow the comments of contract.h word for word, with fmaf, one element at a time and no tiling: what a
// reader would write. Every tier, the scalar one included, must give their bits. exp comes from the scalar tier (math_test.cc judges it).
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/float_types.h"
#include "kernels/contract.h"
#include "kernels/dispatch.h"
#include "kernels/panels.h"
#include "kernels/tiers.h"
#include "platform/aligned_buffer.h"
#include "platform/float_env.h"

namespace sterling::kernels {

// Usable tiers of this host, as test parameters.
inline std::vector<const KernelTable*> host_tables() {
  std::vector<const KernelTable*> tables;
  for (const TierState& state : inspect_tiers()) {
    if (state.usable) tables.push_back(state.tier.table());
  }
  return tables;
}

class PerTier : public testing::TestWithParam<const KernelTable*> {
 protected:
  const KernelTable& table() const { return *GetParam(); }

 private:
  platform::ComputeFloatScope scope_;
};

inline std::string tier_name(const testing::TestParamInfo<const KernelTable*>& info) {
  return info.param->name;
}

#define STERLING_FOR_EVERY_TIER(suite) INSTANTIATE_TEST_SUITE_P(, suite, testing::ValuesIn(host_tables()), tier_name)

// 64-byte aligned, exactly as large as asked: a sanitizer sees the first byte too far in steps of its redzone.
inline platform::AlignedBuffer bytes(std::size_t count) {
  auto buffer = platform::AlignedBuffer::allocate(count == 0 ? 1 : count, "test");
  return std::move(*buffer);
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ull + 0x1234567ull) {}
  std::uint64_t next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545f4914f6cdd1dull;
  }
  int below(int bound) { return static_cast<int>((next() >> 33) % static_cast<std::uint64_t>(bound)); }
  // Uniform in [-1, 1).
  float unit() { return static_cast<float>(static_cast<std::int64_t>(next() >> 40) - (1 << 23)) * 0x1p-23F; }
  // Roughly normal.
  float normal() { return (unit() + unit() + unit()) * 1.0F; }
  // One in eight is special: zeros, subnormals, the smallest normals, ties, far exponents; without `infinite` always finite.
  float hostile(bool infinite) {
    if (below(8) != 0) return normal();
    const float sign = below(2) == 0 ? 1.0F : -1.0F;
    switch (below(infinite ? 10 : 8)) {
      case 0: return sign * 0.0F;
      case 1: return std::bit_cast<float>(static_cast<std::uint32_t>(next() & 0x807fffffu));  // subnormal or zero
      case 2: return sign * 0x1p-126F;
      case 3: return sign * 0x1.01p0F;  // tie when rounded to BF16
      case 4: return sign * 0x1.03p-63F;
      case 5: return sign * 0x1p40F;
      case 6: return sign * 0x1.fep-30F;
      case 7: return sign * 0x1.fffffep-1F;
      case 8: return sign * std::numeric_limits<float>::infinity();
      default: return std::numeric_limits<float>::quiet_NaN();
    }
  }

 private:
  std::uint64_t state_;
};

inline bool same_bits(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) || std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

// Index of the first difference (NaN equal to NaN), or -1.
inline std::int64_t first_difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!same_bits(a[i], b[i])) return static_cast<std::int64_t>(i);
  }
  return -1;
}

#define STERLING_EXPECT_BITS(found, expected, ...)                                                             \
  do {                                                                                                         \
    const auto difference = ::sterling::kernels::first_difference(found, expected);                            \
    ASSERT_EQ(difference, -1) << __VA_ARGS__ << ": found " << (found).at(static_cast<std::size_t>(difference)) \
                              << ", expected " << (expected).at(static_cast<std::size_t>(difference));         \
  } while (false)

// FP32 value of x after rounding to BF16 as the kernels do.
inline float round_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7f800000u) == 0) return std::bit_cast<float>(bits & 0x80000000u);
  return to_float(to_bf16(x));
}

namespace naive {

// acc + x[2i + 1] * w[2i + 1], then + x[2i] * w[2i], over elements [begin, end).
inline float chain(const std::vector<float>& x, const std::vector<float>& w, std::size_t begin, std::size_t end) {
  float acc = 0.0F;
  for (std::size_t i = begin; i < end; i += 2) {
    const bool odd = i + 1 < end;
    acc = std::fmaf(odd ? x[i + 1] : 0.0F, odd ? w[i + 1] : 0.0F, acc);
    acc = std::fmaf(x[i], w[i], acc);
  }
  return acc;
}

// Sums in double, each product exact.
inline float wide_product(const std::vector<float>& x, const std::vector<float>& w) {
  double sum = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += static_cast<double>(x[i]) * static_cast<double>(w[i]);
  return static_cast<float>(sum);
}

// BF16 weights: one chain. FP32 weights: a chain per 16 elements, added up.
inline float product(const std::vector<float>& x, const std::vector<float>& w, bool bf16) {
  if (bf16) return chain(x, w, 0, x.size());
  float total = 0.0F;
  for (std::size_t i = 0; i < x.size(); i += 16) total = total + chain(x, w, i, std::min(x.size(), i + 16));
  return total;
}

inline float lane_fold(std::vector<float> lanes) {
  for (std::size_t half = 8; half > 0; half /= 2) {
    for (std::size_t j = 0; j < half; ++j) lanes[j] = lanes[j] + lanes[j + half];
  }
  return lanes[0];
}

inline float lane_sum(const std::vector<float>& x) {
  std::vector<float> lanes(16, 0.0F);
  for (std::size_t i = 0; i < x.size(); ++i) lanes[i % 16] = lanes[i % 16] + x[i];
  return lane_fold(lanes);
}

inline float lane_sum_of_squares(const std::vector<float>& x) {
  std::vector<float> lanes(16, 0.0F);
  for (std::size_t i = 0; i < x.size(); ++i) lanes[i % 16] = std::fmaf(x[i], x[i], lanes[i % 16]);
  return lane_fold(lanes);
}

inline float lane_dot(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<float> lanes(16, 0.0F);
  for (std::size_t i = 0; i < a.size(); ++i) lanes[i % 16] = std::fmaf(a[i], b[i], lanes[i % 16]);
  return lane_fold(lanes);
}

inline float quad_sum(const std::vector<float>& a, const std::vector<float>& b) {
  float chain[4] = {0.0F, 0.0F, 0.0F, 0.0F};
  for (std::size_t i = 0; i < a.size(); ++i) chain[i % 4] = std::fmaf(a[i], b[i], chain[i % 4]);
  return (chain[0] + chain[1]) + (chain[2] + chain[3]);
}

inline float exp(float x) {
  float y = 0.0F;
  scalar_table()->exp(&x, &y, 1);
  return y;
}
inline float silu(float x) {
  return x / (1.0F + exp(-x));
}
inline float sigmoid(float x) {
  return 1.0F / (1.0F + exp(-x));
}

}  // namespace naive

}  // namespace sterling::kernels
