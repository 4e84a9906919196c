// The start-up probe of the BF16 dot product: a tier's product against the scalar tier's, one K pair per case and lane.
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "kernels/dispatch.h"
#include "kernels/tiers.h"
#include "platform/float_env.h"

namespace sterling::kernels {
namespace {

constexpr int kPairs = 3;  // the last pair meets an accumulator that the first two made
constexpr int kRounds = 256;

// xorshift64*: reproducible on every host, so that a mismatch can be reported and repeated.
class Random {
 public:
  std::uint64_t next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545f4914f6cdd1dull;
  }
  std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>((next() >> 32) % bound); }

 private:
  std::uint64_t state_ = 0x9e3779b97f4a7c15ull;
};

// BF16 bits of the kind `round` is about.
std::uint16_t hostile(Random& random, int round) {
  const auto sign_and_mantissa = static_cast<std::uint16_t>(random.next() & 0x807fu);
  const auto with_exponent = [&](std::uint32_t low, std::uint32_t count) {
    return static_cast<std::uint16_t>(sign_and_mantissa | ((low + random.below(count)) << 7));
  };
  switch (round % 8) {
    case 0: return static_cast<std::uint16_t>(random.next());     // anything: NaN, infinities, subnormals, zeros
    case 1: return with_exponent(120, 16);                        // near one: ties and cancellation
    case 2: return with_exponent(126, 3);                         // heavy cancellation
    case 3: return with_exponent(58, 8);                          // products near the smallest normal
    case 4: return with_exponent(186, 8);                         // products near the largest
    case 5: return with_exponent(0, 2);                           // subnormals and the smallest normals
    case 6: return with_exponent(116 + 24 * random.below(2), 2);  // far apart: sticky bits decide
    default:
      return static_cast<std::uint16_t>((sign_and_mantissa & 0x8001u) |
                                        ((127 + random.below(2)) << 7));  // few bits: exact ties
  }
}

float as_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

struct Case {
  std::array<std::uint16_t, 2 * kPairs * kLanes> panel;  // [pair][lane][2]
  std::array<std::uint16_t, 2 * kPairs> x;
};

std::array<float, kLanes> product(const KernelTable& table, const Case& c) {
  std::array<float, 2 * kPairs> x{};
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = as_float(c.x[i]);
  alignas(64) std::array<std::byte, 4096> packed{};
  alignas(64) std::array<std::uint16_t, 2 * kPairs* kLanes> panel = c.panel;
  std::array<float, kLanes> out{};
  table.pack_x_bf16(x.data(), x.size(), 1, 2 * kPairs, 0, 1, packed.data());
  GemmArgs args{};
  args.x = packed.data();
  args.w = panel.data();
  args.out = out.data();
  args.ldo = kLanes;
  args.m = 1;
  args.k = 2 * kPairs;
  args.n = kLanes;
  args.row_end = 1;
  args.panel_end = 1;
  table.gemm_bf16(&args);
  return out;
}

bool same(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) || std::memcmp(&a, &b, sizeof a) == 0;
}

std::string describe(const Case& c, std::size_t lane, float found, float expected) {
  std::string text = "x";
  for (const std::uint16_t bits : c.x) text += fmt::format(" {:04x}", bits);
  text += ", w";
  for (std::size_t i = 0; i < 2 * kPairs; ++i)
    text += fmt::format(" {:04x}", c.panel[(i / 2 * kLanes + lane) * 2 + i % 2]);
  return text + fmt::format(": {:08x}, canonical {:08x}", std::bit_cast<std::uint32_t>(found),
                            std::bit_cast<std::uint32_t>(expected));
}

}  // namespace

ProbeResult probe_dot_product(const KernelTable& table) {
  const KernelTable& reference = *scalar_table();
  ProbeResult result;
  Random random;
  for (int round = 0; round < kRounds; ++round) {
    Case c{};
    for (auto& bits : c.x) bits = hostile(random, round);
    for (auto& bits : c.panel) bits = hostile(random, round);
    std::array<float, kLanes> expected{};
    std::array<float, kLanes> found{};
    {
      const platform::ComputeFloatScope scope;
      expected = product(reference, c);
      found = product(table, c);
    }
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      ++result.cases;
      if (same(found[lane], expected[lane])) continue;
      if (result.mismatches++ == 0) result.first_mismatch = describe(c, lane, found[lane], expected[lane]);
    }
  }
  return result;
}

}  // namespace sterling::kernels
