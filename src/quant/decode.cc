#include "quant/decode.h"

#include <bit>
#include <cstring>
#include <exception>
#include <optional>

#include <fmt/format.h>

#include "base/float_types.h"
#include "quant/gguf_blocks.h"

namespace sterling::quant {

namespace {

static_assert(std::endian::native == std::endian::little, "stored numbers are read as they lie");

Error tensor_error(ErrorCode code, const TensorView& tensor, std::string_view problem) {
  return make_error(code, fmt::format("{}: tensor \"{}\": {}", tensor.file, tensor.name, problem),
                    fmt::format("{}:{}", tensor.file, tensor.name));
}

// The sources are not aligned, hence the copies; compilers turn them into plain loads.
template <typename T>
void decode_scalars(const std::byte* bytes, std::int64_t count, float* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, bytes + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    out[i] = to_float(value);
  }
}

// `count` elements from the start of a row; whole blocks for a block type.
void decode_run(DType dtype, const std::byte* bytes, std::int64_t count, float* out) {
  if (count == 0) return;
  switch (dtype) {
    case DType::kF32: std::memcpy(out, bytes, static_cast<std::size_t>(count) * sizeof(float)); return;
    case DType::kF16: return decode_scalars<fp16>(bytes, count, out);
    case DType::kBF16: return decode_scalars<bf16>(bytes, count, out);
    default: return decode_blocks(dtype, bytes, count / dtype_layout(dtype).block_elements, out);
  }
}

// Where row `row` of Hugging Face's order lies in the file. A head of d rows is stored as pairs (i, i + d/2) side by side.
std::int64_t stored_row(std::int64_t row, std::int64_t head_dim) {
  const std::int64_t head = row / head_dim;
  const std::int64_t within = row % head_dim;
  const std::int64_t half = head_dim / 2;
  return head * head_dim + (within < half ? 2 * within : 2 * (within - half) + 1);
}

// Rows that RoPE pairs up: the elements of a vector, the rows of a matrix.
std::int64_t rope_rows(const TensorView& tensor) {
  return tensor.shape.empty() ? 1 : tensor.shape.front();
}

Status check(const TensorView& tensor) {
  if (!can_decode(tensor.dtype)) {
    return tensor_error(
        ErrorCode::kUnsupported, tensor,
        fmt::format("{} has no exact FP32 value of its own; accepted: F32, F16, BF16, Q4_0, Q4_1, Q5_0, "
                    "Q5_1, Q8_0, Q4_K, Q5_K, Q6_K",
                    dtype_name(tensor.dtype)));
  }
  const std::optional<std::uint64_t> elements = shape_elements(tensor.shape);
  const std::optional<std::uint64_t> bytes = elements ? dtype_bytes(tensor.dtype, *elements) : std::nullopt;
  const bool whole_blocks =
      tensor.shape.empty() || tensor.shape.back() % dtype_layout(tensor.dtype).block_elements == 0;
  if (!bytes || !whole_blocks || *bytes != tensor.data.size()) {
    return tensor_error(ErrorCode::kCorrupt, tensor,
                        fmt::format("{} bytes do not fit shape {} of {}", tensor.data.size(), shape_text(tensor.shape),
                                    dtype_name(tensor.dtype)));
  }
  const std::int64_t heads = tensor.interleaved_rope_heads;
  if (heads < 0 || (heads > 0 && (tensor.shape.empty() || tensor.shape.size() > 2 || heads > rope_rows(tensor) ||
                                  rope_rows(tensor) % (2 * heads) != 0))) {
    return tensor_error(ErrorCode::kCorrupt, tensor,
                        fmt::format("shape {} cannot be {} interleaved heads", shape_text(tensor.shape), heads));
  }
  return {};
}

}  // namespace

bool can_decode(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16 || is_block_dtype(dtype);
}

RowShape row_shape(const TensorView& tensor) {
  RowShape shape;
  if (tensor.shape.empty()) return shape;
  shape.columns = tensor.shape.back();
  for (std::size_t i = 0; i + 1 < tensor.shape.size(); ++i) shape.rows *= tensor.shape[i];
  return shape;
}

Status decode_rows(const TensorView& tensor, std::int64_t row_begin, std::int64_t row_end, float* out) {
  if (Status status = check(tensor); !status) return status;
  const auto [rows, columns] = row_shape(tensor);
  if (row_begin < 0 || row_end < row_begin || row_end > rows) {
    return tensor_error(ErrorCode::kInvalidArgument, tensor,
                        fmt::format("rows [{}, {}) of {} rows", row_begin, row_end, rows));
  }
  const std::int64_t row_bytes = rows == 0 ? 0 : static_cast<std::int64_t>(tensor.data.size()) / rows;
  const std::byte* data = tensor.data.data();
  if (tensor.interleaved_rope_heads == 0) {
    if (row_end > row_begin)
      decode_run(tensor.dtype, data + row_begin * row_bytes, (row_end - row_begin) * columns, out);
    return {};
  }
  const std::int64_t head_dim = rope_rows(tensor) / tensor.interleaved_rope_heads;
  if (tensor.shape.size() == 2) {
    for (std::int64_t row = row_begin; row < row_end; ++row, out += columns) {
      decode_run(tensor.dtype, data + stored_row(row, head_dim) * row_bytes, columns, out);
    }
  } else if (row_end > row_begin) {
    std::vector<float> stored(static_cast<std::size_t>(columns));
    decode_run(tensor.dtype, data, columns, stored.data());
    for (std::int64_t i = 0; i < columns; ++i) out[i] = stored[static_cast<std::size_t>(stored_row(i, head_dim))];
  }
  return {};
}

Expected<std::vector<float>> decode(const TensorView& tensor) {
  if (Status status = check(tensor); !status) return status.error();
  try {
    std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
    if (Status status = decode_rows(tensor, 0, row_shape(tensor).rows, values.data()); !status) return status.error();
    return values;
  } catch (const std::exception& problem) {
    return tensor_error(ErrorCode::kResourceExhausted, tensor, problem.what());
  }
}

}  // namespace sterling::quant
