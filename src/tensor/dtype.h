// Element types of stored tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sterling {

enum class DType : std::uint8_t {
  kF64, kF32, kF16, kBF16, kF8E4M3, kF8E5M2, kF8E8M0, kF4E2M1,
  kI64, kI32, kI16, kI8, kU64, kU32, kU16, kU8, kBool,
};

// Bits of one element (4 for kF4E2M1).
std::size_t dtype_bits(DType dtype);
// The safetensors spelling: "BF16", "F8_E4M3", …
std::string_view dtype_name(DType dtype);

}  // namespace sterling
