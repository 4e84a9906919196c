#include "hub/glob.h"

#include <algorithm>
#include <cstdint>
#include <optional>

namespace sterling::hub {
namespace {

// Code points; a byte that starts no well-formed sequence stands for itself.
std::u32string code_points(std::string_view text) {
  std::u32string out;
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const std::size_t length = lead < 0x80 ? 1 : lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
    char32_t value = length == 1 ? lead : lead & (0xFFu >> (length + 1));
    bool whole = i + length <= text.size();
    for (std::size_t k = 1; whole && k < length; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      whole = (next & 0xC0) == 0x80;
      value = value << 6 | (next & 0x3F);
    }
    out.push_back(whole ? value : char32_t{lead});
    i += whole ? length : 1;
  }
  return out;
}

// The set that starts at pattern[open] == '['. Sets *next behind it; nothing when it never closes and '[' stands for itself.
std::optional<bool> in_set(const std::u32string& pattern, std::size_t open, char32_t c, std::size_t* next) {
  std::size_t i = open + 1;
  const bool negated = i < pattern.size() && pattern[i] == U'!';
  if (negated) ++i;
  // ']' right at the start is a member.
  std::size_t close = i < pattern.size() && pattern[i] == U']' ? i + 1 : i;
  while (close < pattern.size() && pattern[close] != U']') ++close;
  if (close >= pattern.size()) return std::nullopt;
  *next = close + 1;
  bool found = false;
  while (i < close) {
    // '-' between two characters is a range; first or last it is itself. A range that runs backwards holds nothing.
    if (i + 2 < close && pattern[i + 1] == U'-') {
      found = found || (pattern[i] <= c && c <= pattern[i + 2]);
      i += 3;
    } else {
      found = found || pattern[i] == c;
      ++i;
    }
  }
  return found != negated;
}

// One pattern character (or set) at `p` against `c`; sets *next behind it.
bool matches_one(const std::u32string& pattern, std::size_t p, char32_t c, std::size_t* next) {
  *next = p + 1;
  if (pattern[p] == U'?') return true;
  if (pattern[p] == U'[') {
    if (const auto member = in_set(pattern, p, c, next)) return *member;
  }
  return pattern[p] == c;
}

}  // namespace

bool matches(std::string_view pattern_text, std::string_view text_bytes) {
  const std::u32string pattern = code_points(pattern_text);
  const std::u32string text = code_points(text_bytes);
  // Greedy with one point of return: the last '*' is the only one worth going back to, so the time is at most the product of lengths.
  std::size_t p = 0;
  std::size_t t = 0;
  std::optional<std::size_t> star;
  std::size_t star_text = 0;
  while (t < text.size()) {
    std::size_t next = 0;
    if (p < pattern.size() && pattern[p] == U'*') {
      star = p++;
      star_text = t;
    } else if (p < pattern.size() && matches_one(pattern, p, text[t], &next)) {
      p = next;
      ++t;
    } else if (star) {
      p = *star + 1;
      t = ++star_text;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == U'*') ++p;
  return p == pattern.size();
}

bool selected(std::string_view path, std::span<const std::string> include, std::span<const std::string> exclude) {
  const auto hit = [path](const std::string& pattern) {
    std::string whole = pattern.ends_with('/') ? pattern + "*" : pattern;
    std::replace(whole.begin(), whole.end(), '\\', '/');  // no escape in fnmatch, and the hub's names have none
    return matches(whole, path);
  };
  if (!include.empty() && std::none_of(include.begin(), include.end(), hit)) return false;
  return std::none_of(exclude.begin(), exclude.end(), hit);
}

}  // namespace sterling::hub
