// One GGUF file, versions 2 and 3, little endian: typed metadata and tensors under their GGUF names.
// Pure functions of the bytes, thread-safe. Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "tensor/tensor_view.h"

namespace sterling::formats {

using GgufStrings = std::vector<std::string_view>;
using GgufIntegers = std::vector<std::int64_t>;  // booleans too
using GgufNumbers = std::vector<double>;

// Integers of every width are int64; uint64 holds only those beyond 2^63 - 1. Strings may hold any bytes.
using GgufValue =
    std::variant<std::int64_t, std::uint64_t, double, bool, std::string_view, GgufIntegers, GgufNumbers, GgufStrings>;

// Key and value pairs sorted by key. Move-only in spirit: the arrays of a vocabulary are megabytes.
class GgufMetadata {
 public:
  using Pair = std::pair<std::string_view, GgufValue>;
  GgufMetadata() = default;
  // `pairs` sorted by key, no key twice.
  explicit GgufMetadata(std::vector<Pair> pairs) : pairs_(std::move(pairs)) {}

  const GgufValue* find(std::string_view key) const;
  std::span<const Pair> pairs() const { return pairs_; }

  // The value if it is there and of that type, else nullptr.
  template <typename T>
  const T* get(std::string_view key) const {
    const GgufValue* value = find(key);
    return value == nullptr ? nullptr : std::get_if<T>(value);
  }

 private:
  std::vector<Pair> pairs_;
};

struct GgufContents {
  std::uint32_t version = 0;
  GgufMetadata metadata;
  // In file order, under GGUF's names; extents in row-major order (GGUF lists the fastest first).
  std::vector<TensorView> tensors;
};

// `bytes` is the whole file and `file` its name; the result borrows both. kCorrupt, or kUnsupported for another version, big
// endian, one part of a split file, or a tensor type that Sterling does not read.
Expected<GgufContents> parse_gguf(std::span<const std::byte> bytes, std::string_view file);

}  // namespace sterling::formats
