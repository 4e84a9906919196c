// Random tensor contents by position: element i of a tensor is a function of (key, i) alone, so that any part can be made anywhere, in any order, on any number of threads.
//
// Every four elements share one 64-bit word of a counter-based generator (SplitMix64's output function, Steele, Lea, Flood: "Fast splittable
// pseudorandom number generators", OOPSLA 2014); each takes 16 bits of it as index into a table of 65536 stored values, the quantiles of its
// distribution. So codes of quantised weights are drawn as they are stored, at the speed of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"

namespace sterling::lab {

// 65536 stored elements of 1, 2 or 4 bytes.
struct ValueTable {
  std::size_t element_bytes = 1;
  std::vector<std::byte> values;
};

// Values centre + deviation * z, z standard normal; or uniform from centre - deviation to centre + deviation.
struct Distribution {
  double centre = 0.0;
  double deviation = 1.0;
  bool uniform = false;
  auto operator<=>(const Distribution&) const = default;
};

// `dtype` is BF16 or F32.
ValueTable plain_table(DType dtype, const Distribution& distribution);

// Weights of standard deviation 1 as codes and the scale that goes with them, both tables to be drawn from independently.
struct CodeTables {
  ValueTable codes;   // NVFP4: bytes of two elements; FP8: one
  ValueTable scales;  // NVFP4: E4M3 scales of blocks; FP8 per block: none, see block_scales
  double unit = 1.0;  // a scale of this times the wanted deviation gives weights of that deviation
};
CodeTables nvfp4_tables();
CodeTables fp8_tables();
// BF16 scales of blocks around `scale`, within a fifth of it.
ValueTable block_scale_table(double scale);

// What a tensor's values hang on.
std::uint64_t tensor_key(std::uint64_t seed, std::string_view name);

// Elements [first, first + out.size() / element_bytes) of the tensor with this key; `first` is a multiple of 4.
void draw(const ValueTable& table, std::uint64_t key, std::uint64_t first, std::span<std::byte> out);

}  // namespace sterling::lab
