// Element types of stored tensors: the plain ones of safetensors and the block types of GGUF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace sterling {

enum class DType : std::uint8_t {
  kF64,
  kF32,
  kF16,
  kBF16,
  kF8E4M3,
  kF8E5M2,
  kF8E8M0,
  kF4E2M1,
  kI64,
  kI32,
  kI16,
  kI8,
  kU64,
  kU32,
  kU16,
  kU8,
  kBool,
  // GGUF blocks: a run of elements of one row that shares its scales (quant/gguf_blocks.h has the byte layouts).
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ4_K,
  kQ5_K,
  kQ6_K,
};

// `block_elements` consecutive elements of a row occupy `block_bytes` bytes: {1, 2} for BF16, {2, 1} for F4, {32, 18} for Q4_0.
struct DTypeLayout {
  std::uint32_t block_elements = 1;
  std::uint32_t block_bytes = 1;
};

DTypeLayout dtype_layout(DType dtype);

// True for the GGUF types whose blocks carry scales.
bool is_block_dtype(DType dtype);

// Bytes of `elements` elements; empty when they are not a whole number of blocks or the product does not fit 63 bits.
std::optional<std::uint64_t> dtype_bytes(DType dtype, std::uint64_t elements);

// Product of the extents (1 for rank 0); empty when an extent is negative or the product does not fit 63 bits.
std::optional<std::uint64_t> shape_elements(std::span<const std::int64_t> shape);

// The spelling of the file formats: "BF16", "F8_E4M3", "Q4_K", …
std::string_view dtype_name(DType dtype);

// "[32, 16]", for messages.
std::string shape_text(std::span<const std::int64_t> shape);

}  // namespace sterling
