// Philox4x32-10: a counter-based generator (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
// A pure function of counter and key, so the random number of a position needs no state: it is the same whether the request ran
// alone, was batched, was preempted and computed again, or had the token proposed by speculation.
#pragma once

#include <array>
#include <cstdint>

namespace sterling::engine {

using PhiloxCounter = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;

constexpr PhiloxCounter philox4x32_10(PhiloxCounter counter, PhiloxKey key) {
  // Multipliers and key increments (golden ratio, sqrt(3) - 1) are those of the paper, table 2 and section 4.2.
  constexpr std::uint64_t kMultiplier0 = 0xD2511F53u;
  constexpr std::uint64_t kMultiplier1 = 0xCD9E8D57u;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = kMultiplier0 * counter[0];
    const std::uint64_t product1 = kMultiplier1 * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(product0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// Uniform in [0, 1), a multiple of 2^-53, for the token at `position` of choice `stream` of a request seeded with `seed`.
// The second counter word numbers the draws of one position; a token needs one.
constexpr double uniform_draw(std::uint64_t seed, std::uint64_t stream, std::int32_t position, std::uint32_t draw = 0) {
  const PhiloxCounter bits =
      philox4x32_10({static_cast<std::uint32_t>(position), draw, static_cast<std::uint32_t>(stream),
                     static_cast<std::uint32_t>(stream >> 32)},
                    {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  const std::uint64_t word = (static_cast<std::uint64_t>(bits[0]) << 32) | bits[1];
  return static_cast<double>(word >> 11) * 0x1p-53;
}

}  // namespace sterling::engine
