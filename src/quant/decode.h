// Exact decoding of stored weights to FP32: the reference meaning of every stored type that carries its own scales.
// Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "tensor/tensor_view.h"

namespace sterling::quant {

// True for F32, F16, BF16 and the GGUF block types. (F64 does not fit FP32; FP8 and FP4 tensors need scales from elsewhere.)
bool can_decode(DType dtype);

// Rows and columns as decode_rows() counts them: the last extent is a row; a vector is one row, a scalar a row of one.
struct RowShape {
  std::int64_t rows = 1;
  std::int64_t columns = 1;
};
RowShape row_shape(const TensorView& tensor);

// Writes rows [row_begin, row_end) of `tensor` as FP32 to `out` (room for (row_end - row_begin) * columns values). Rows are
// counted in Hugging Face's order: where tensor.interleaved_rope_heads is set, the stored rows are put back in place (for a
// vector, such as a bias, the elements). Values equal those of the format's reference decoder bit for bit.
// kUnsupported: a type without own scales. kCorrupt: shape and data disagree. kInvalidArgument: rows out of range.
Status decode_rows(const TensorView& tensor, std::int64_t row_begin, std::int64_t row_end, float* out);

// All of it, row-major.
Expected<std::vector<float>> decode(const TensorView& tensor);

}  // namespace sterling::quant
