// The numbers that GGUF gives to tensor types, and which of them Sterling reads.
// Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md and the constants of the PyPI package gguf.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tensor/dtype.h"

namespace sterling::formats {

struct GgufTensorType {
  std::uint32_t id;
  std::string_view name;
  std::optional<DType> dtype;  // empty: known by name, not read here
};

// nullptr when nothing has that number.
const GgufTensorType* find_gguf_tensor_type(std::uint32_t id);

// "F32, F16, Q4_0, …", for messages.
std::string accepted_gguf_tensor_types();

}  // namespace sterling::formats
