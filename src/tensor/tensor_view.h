// A borrowed, read-only tensor of a checkpoint: contiguous, row-major, little-endian bytes. Does not own its memory; valid as
// long as the Checkpoint it came from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tensor/dtype.h"

namespace sterling {

struct TensorView {
  std::string name;
  DType dtype = DType::kBF16;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;  // exactly the elements' bytes

  std::int64_t elements() const {
    std::int64_t n = 1;
    for (const std::int64_t extent : shape) n *= extent;
    return n;
  }
};

}  // namespace sterling
