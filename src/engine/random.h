// Random numbers as a function: the draw of a token depends on (seed, stream, position) alone, so neither batching nor preemption nor
// a restart changes it. Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
#pragma once

#include <array>
#include <cstdint>

namespace sterling::engine {

// The generator's block function, ten rounds.
std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

// Uniform in [0, 1) with 53 bits, for one position of one stream.
double uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t position);

}  // namespace sterling::engine
