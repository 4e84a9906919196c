// For tests only: writes the bytes of GGUF files, right and wrong ones.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "formats/test_support.h"

namespace sterling::formats {

class GgufBuilder {
 public:
  static std::string text(std::string_view s) { return little_endian(std::uint64_t{s.size()}) + std::string(s); }

  // A pair with its value's bytes as they are.
  GgufBuilder& raw(std::string_view key, std::uint32_t type, std::string_view bytes) {
    pairs_ += text(key) + little_endian(type) + std::string(bytes);
    ++pair_count_;
    return *this;
  }
  GgufBuilder& u32(std::string_view key, std::uint32_t v) { return raw(key, 4, little_endian(v)); }
  GgufBuilder& u64(std::string_view key, std::uint64_t v) { return raw(key, 10, little_endian(v)); }
  GgufBuilder& f32(std::string_view key, float v) { return raw(key, 6, little_endian(v)); }
  GgufBuilder& flag(std::string_view key, bool v) { return raw(key, 7, std::string(1, v ? '\1' : '\0')); }
  GgufBuilder& string(std::string_view key, std::string_view v) { return raw(key, 8, text(v)); }
  GgufBuilder& strings(std::string_view key, const std::vector<std::string>& values) {
    std::string bytes = little_endian(std::uint32_t{8}) + little_endian(std::uint64_t{values.size()});
    for (const std::string& value : values) bytes += text(value);
    return raw(key, 9, bytes);
  }
  GgufBuilder& integers(std::string_view key, const std::vector<std::int32_t>& values) {
    std::string bytes = little_endian(std::uint32_t{5}) + little_endian(std::uint64_t{values.size()});
    for (const std::int32_t value : values) bytes += little_endian(value);
    return raw(key, 9, bytes);
  }

  // Extents as GGUF lists them, fastest first. The entry alone: any offset, no data.
  GgufBuilder& entry(std::string_view name, const std::vector<std::uint64_t>& extents, std::uint32_t type,
                     std::uint64_t offset) {
    entries_ += text(name) + little_endian(static_cast<std::uint32_t>(extents.size()));
    for (const std::uint64_t extent : extents) entries_ += little_endian(extent);
    entries_ += little_endian(type) + little_endian(offset);
    ++tensor_count_;
    return *this;
  }
  // An F32 tensor of zeros with its data.
  GgufBuilder& zeros(std::string_view name, const std::vector<std::uint64_t>& extents) {
    std::uint64_t count = 1;
    for (const std::uint64_t extent : extents) count *= extent;
    entry(name, extents, 0, data_.size());
    data_.append(count * 4, '\0');
    data_.resize((data_.size() + 31) / 32 * 32);
    return *this;
  }
  GgufBuilder& data(std::size_t bytes) {
    data_.append(bytes, '\0');
    return *this;
  }

  std::string bytes(std::uint32_t version = 3) const {
    std::string out =
        "GGUF" + little_endian(version) + little_endian(tensor_count_) + little_endian(pair_count_) + pairs_ + entries_;
    if (!data_.empty()) out.resize((out.size() + 31) / 32 * 32);
    return out + data_;
  }

 private:
  std::string pairs_, entries_, data_;
  std::uint64_t pair_count_ = 0, tensor_count_ = 0;
};

}  // namespace sterling::formats
