#include "formats/message.h"

#include <cstddef>
#include <cstdint>

#include <fmt/format.h>

namespace sterling::formats {

namespace {

constexpr std::size_t kLongestQuote = 200;

std::uint8_t byte_at(std::string_view text, std::size_t i) {
  return static_cast<std::uint8_t>(text[i]);
}

bool is_continuation(std::string_view text, std::size_t i) {
  return i < text.size() && (byte_at(text, i) & 0xc0u) == 0x80u;
}

// Length of the well-formed character at `i`, or 0. The ranges of the second byte are those of Unicode's table 3-7.
std::size_t utf8_length(std::string_view text, std::size_t i) {
  const std::uint8_t lead = byte_at(text, i);
  if (lead < 0x80) return 1;
  if (lead < 0xc2 || lead > 0xf4 || !is_continuation(text, i + 1)) return 0;
  const std::uint8_t second = byte_at(text, i + 1);
  if (lead < 0xe0) return 2;
  if (!is_continuation(text, i + 2)) return 0;
  if (lead < 0xf0) {
    if (lead == 0xe0 && second < 0xa0) return 0;  // overlong
    if (lead == 0xed && second > 0x9f) return 0;  // surrogate
    return 3;
  }
  if (!is_continuation(text, i + 3)) return 0;
  if (lead == 0xf0 && second < 0x90) return 0;  // overlong
  if (lead == 0xf4 && second > 0x8f) return 0;  // beyond U+10FFFF
  return 4;
}

}  // namespace

std::string quote(std::string_view text) {
  std::string out = "\"";
  std::size_t i = 0;
  while (i < text.size() && i < kLongestQuote) {
    const std::uint8_t c = byte_at(text, i);
    const std::size_t length = utf8_length(text, i);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (length == 0 || c < 0x20 || c == 0x7f) {
      out += fmt::format("\\x{:02x}", c);
    } else if (length == 2 && c == 0xc2 && byte_at(text, i + 1) < 0xa0) {
      out += fmt::format("\\u{:04x}", byte_at(text, i + 1));  // C1 control characters move terminals too
    } else {
      out += text.substr(i, length);
    }
    i += length == 0 ? 1 : length;
  }
  out += '"';
  if (i < text.size()) out += fmt::format("... ({} bytes)", text.size());
  return out;
}

bool is_valid_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_length(text, i);
    if (length == 0) return false;
    i += length;
  }
  return true;
}

}  // namespace sterling::formats
