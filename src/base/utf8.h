// UTF-8 one step at a time, with the boundaries of Unicode's "maximal subpart" practice (what Python, Rust and browsers
// replace by one U+FFFD each).
#pragma once

#include <cstddef>
#include <string_view>

namespace sterling {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

struct Utf8Step {
  enum Kind {
    kCharacter,   // `size` bytes are one character
    kBad,         // `size` bytes are no part of any character
    kIncomplete,  // all `size` bytes that are left begin a character that could be completed
  };
  Kind kind;
  std::size_t size;
};

// The first step of `bytes`, which must not be empty.
Utf8Step utf8_step(std::string_view bytes);

// How many bytes from the start are whole valid characters.
std::size_t utf8_valid_prefix(std::string_view bytes);

}  // namespace sterling
