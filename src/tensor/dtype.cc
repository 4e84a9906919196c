#include "tensor/dtype.h"

#include <limits>

namespace sterling {

namespace {

constexpr std::uint64_t kMaxSize = std::numeric_limits<std::int64_t>::max();

}  // namespace

DTypeLayout dtype_layout(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kI64:
    case DType::kU64: return {1, 8};
    case DType::kF32:
    case DType::kI32:
    case DType::kU32: return {1, 4};
    case DType::kF16:
    case DType::kBF16:
    case DType::kI16:
    case DType::kU16: return {1, 2};
    case DType::kF8E4M3:
    case DType::kF8E5M2:
    case DType::kF8E8M0:
    case DType::kI8:
    case DType::kU8:
    case DType::kBool: return {1, 1};
    case DType::kF4E2M1: return {2, 1};
    case DType::kQ4_0: return {32, 18};    // scale, 32 nibbles
    case DType::kQ4_1: return {32, 20};    // scale, minimum, 32 nibbles
    case DType::kQ5_0: return {32, 22};    // scale, 32 high bits, 32 nibbles
    case DType::kQ5_1: return {32, 24};    // scale, minimum, 32 high bits, 32 nibbles
    case DType::kQ8_0: return {32, 34};    // scale, 32 bytes
    case DType::kQ4_K: return {256, 144};  // 2 scales, 12 bytes of sub-scales, 256 nibbles
    case DType::kQ5_K: return {256, 176};  // as Q4_K with 256 high bits
    case DType::kQ6_K: return {256, 210};  // 256 nibbles, 256 high pairs, 16 sub-scales, scale
  }
  return {1, 1};
}

bool is_block_dtype(DType dtype) {
  return dtype >= DType::kQ4_0;
}

std::optional<std::uint64_t> dtype_bytes(DType dtype, std::uint64_t elements) {
  const DTypeLayout layout = dtype_layout(dtype);
  if (elements % layout.block_elements != 0) return std::nullopt;
  const std::uint64_t blocks = elements / layout.block_elements;
  if (blocks > kMaxSize / layout.block_bytes) return std::nullopt;
  return blocks * layout.block_bytes;
}

std::optional<std::uint64_t> shape_elements(std::span<const std::int64_t> shape) {
  std::uint64_t product = 1;
  bool empty = false;
  for (const std::int64_t extent : shape) {
    if (extent < 0) return std::nullopt;
    if (extent == 0) {
      empty = true;  // but the other extents must still be sane
      continue;
    }
    if (product > kMaxSize / static_cast<std::uint64_t>(extent)) return std::nullopt;
    product *= static_cast<std::uint64_t>(extent);
  }
  return empty ? 0 : product;
}

std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kF64: return "F64";
    case DType::kF32: return "F32";
    case DType::kF16: return "F16";
    case DType::kBF16: return "BF16";
    case DType::kF8E4M3: return "F8_E4M3";
    case DType::kF8E5M2: return "F8_E5M2";
    case DType::kF8E8M0: return "F8_E8M0";
    case DType::kF4E2M1: return "F4";
    case DType::kI64: return "I64";
    case DType::kI32: return "I32";
    case DType::kI16: return "I16";
    case DType::kI8: return "I8";
    case DType::kU64: return "U64";
    case DType::kU32: return "U32";
    case DType::kU16: return "U16";
    case DType::kU8: return "U8";
    case DType::kBool: return "BOOL";
    case DType::kQ4_0: return "Q4_0";
    case DType::kQ4_1: return "Q4_1";
    case DType::kQ5_0: return "Q5_0";
    case DType::kQ5_1: return "Q5_1";
    case DType::kQ8_0: return "Q8_0";
    case DType::kQ4_K: return "Q4_K";
    case DType::kQ5_K: return "Q5_K";
    case DType::kQ6_K: return "Q6_K";
  }
  return "?";
}

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i != 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text += "]";
}

}  // namespace sterling
