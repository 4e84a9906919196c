// Searching a list of tensors that is sorted by name. Pure functions, thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>

#include "tensor/tensor_view.h"

namespace sterling::formats {

// The place of `name`, or tensors.size(). Looks around `from` first and in widening steps after that: who asks for a model's tensors asks for
// neighbours, and 370,000 names are spread over more memory than the caches hold.
inline std::size_t find_near(std::span<const TensorView> tensors, std::size_t from, std::string_view name) {
  const std::size_t count = tensors.size();
  if (count == 0) return 0;
  std::size_t low = 0;       // names before it are smaller
  std::size_t high = count;  // names from it on are not
  from = std::min(from, count - 1);
  if (tensors[from].name < name) {
    low = from + 1;
    for (std::size_t step = 1; low < count; step *= 2) {
      const std::size_t probe = std::min(count - 1, from + step);
      if (!(tensors[probe].name < name)) {
        high = probe;
        break;
      }
      low = probe + 1;
    }
  } else {
    high = from;
    for (std::size_t step = 1; high > 0; step *= 2) {
      const std::size_t probe = from > step ? from - step : 0;
      if (tensors[probe].name < name) {
        low = probe + 1;
        break;
      }
      high = probe;
    }
  }
  const auto begin = tensors.begin();
  const auto at =
      std::lower_bound(begin + static_cast<std::ptrdiff_t>(low), begin + static_cast<std::ptrdiff_t>(high), name,
                       [](const TensorView& tensor, std::string_view wanted) { return tensor.name < wanted; });
  return at != tensors.end() && at->name == name ? static_cast<std::size_t>(at - begin) : count;
}

}  // namespace sterling::formats
