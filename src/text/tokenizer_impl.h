// The Rust handle behind a Tokenizer. Private to text/*.cc.
#pragma once

#include <cstdint>
#include <string_view>

#include "text/textkit_call.h"
#include "text/tokenizer.h"

namespace sterling::text {

struct Tokenizer::Impl {
  tk_tokenizer* handle = nullptr;
  tk_token_table table = {};  // borrowed from the handle

  Impl() = default;
  ~Impl() { tk_tokenizer_free(handle); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  std::uint8_t flags(std::int32_t id) const {
    return id >= 0 && static_cast<std::size_t>(id) < table.count ? table.flags[id] : std::uint8_t{0};
  }
  std::string_view strip() const { return {reinterpret_cast<const char*>(table.strip), table.strip_size}; }
  static std::string_view slice(const std::uint8_t* data, const std::uint32_t* offset, std::int32_t id) {
    return {reinterpret_cast<const char*>(data) + offset[id], offset[id + 1] - offset[id]};
  }
};

}  // namespace sterling::text
