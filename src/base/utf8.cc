#include "base/utf8.h"

#include <cstdint>

namespace sterling {

Utf8Step utf8_step(std::string_view bytes) {
  const auto at = [&](std::size_t i) { return static_cast<std::uint8_t>(bytes[i]); };
  const std::uint8_t lead = at(0);
  if (lead < 0x80) return {Utf8Step::kCharacter, 1};
  // Bounds of the second byte: they exclude overlong forms, surrogates and what lies above U+10FFFF (Unicode table 3-7).
  std::size_t length = 0;
  std::uint8_t low = 0x80;
  std::uint8_t high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {Utf8Step::kBad, 1};
  }
  for (std::size_t i = 1; i < length; ++i) {
    if (i == bytes.size()) return {Utf8Step::kIncomplete, i};
    if (at(i) < low || at(i) > high) return {Utf8Step::kBad, i};
    low = 0x80;
    high = 0xBF;
  }
  return {Utf8Step::kCharacter, length};
}

std::size_t utf8_valid_prefix(std::string_view bytes) {
  std::size_t at = 0;
  while (at < bytes.size()) {
    const Utf8Step step = utf8_step(bytes.substr(at));
    if (step.kind != Utf8Step::kCharacter) break;
    at += step.size;
  }
  return at;
}

}  // namespace sterling
