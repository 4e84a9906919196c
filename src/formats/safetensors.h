// One safetensors file: 8 bytes header length (little endian), a JSON header {name: {dtype, shape, data_offsets}}, the data.
// Pure function of the bytes, thread-safe. Format: https://github.com/huggingface/safetensors#format
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "tensor/tensor_view.h"

namespace sterling::formats {

// The reference reader's limit.
inline constexpr std::size_t kMaxSafetensorsHeader = 100'000'000;

struct SafetensorsContents {
  std::vector<TensorView> tensors;  // sorted by name; data points into `bytes`, file is `file`
  std::vector<std::pair<std::string, std::string>> metadata;  // __metadata__, in file order
};

// `bytes` is the whole file and `file` its name; the views borrow both. Beyond what the reference reader checks, a name that
// appears twice, an unknown field and a dtype that Sterling has no use for are errors. kCorrupt, kUnsupported (dtype).
Expected<SafetensorsContents> parse_safetensors(std::span<const std::byte> bytes, std::string_view file);

}  // namespace sterling::formats
