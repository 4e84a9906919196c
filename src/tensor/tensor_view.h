// A borrowed, read-only tensor of a checkpoint: contiguous, row-major (last extent fastest), little-endian bytes. Does not own
// its memory; valid as long as the Checkpoint it came from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"

namespace sterling {

struct TensorView {
  std::string name;  // Hugging Face's name
  DType dtype = DType::kBF16;
  std::vector<std::int64_t> shape;  // Hugging Face's order: [rows, columns] for a linear layer
  std::span<const std::byte> data;  // exactly the elements' bytes; no alignment is promised
  std::string_view file;            // the file it lies in, for messages; owned by the Checkpoint

  // Not 0: the rows are Q or K heads as GGUF stores them for interleaved RoPE, this many heads; quant/decode.h restores
  // Hugging Face's order (first half of each head, then second half).
  std::int64_t interleaved_rope_heads = 0;

  // The readers of formats/ have checked that the product does not overflow.
  std::int64_t elements() const {
    std::int64_t n = 1;
    for (const std::int64_t extent : shape) n *= extent;
    return n;
  }
};

}  // namespace sterling
