#include "platform/small_file.h"

#include <charconv>
#include <fstream>

namespace sterling::platform {
namespace {

constexpr std::string_view kBlanks = " \t\n\r";
constexpr std::size_t kMaxFileBytes = std::size_t{1} << 20;

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

}  // namespace

std::optional<std::string> read_small_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::string text(kMaxFileBytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return std::nullopt;
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  for (;;) {
    const std::size_t at = text.find(separator);
    pieces.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return pieces;
    text.remove_prefix(at + 1);
  }
}

std::vector<std::string_view> split_words(std::string_view text) {
  std::vector<std::string_view> words;
  for (;;) {
    const std::size_t first = text.find_first_not_of(kBlanks);
    if (first == std::string_view::npos) return words;
    text.remove_prefix(first);
    const std::size_t length = text.find_first_of(kBlanks);
    words.push_back(text.substr(0, length));
    if (length == std::string_view::npos) return words;
    text.remove_prefix(length);
  }
}

std::optional<std::uint64_t> parse_unsigned(std::string_view text) {
  text = trimmed(text);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

std::optional<std::string_view> line_value(std::string_view text, std::string_view key) {
  for (const std::string_view line : split(text, '\n')) {
    if (!line.starts_with(key)) continue;
    std::string_view rest = line.substr(key.size());
    if (rest.starts_with(':')) {
      rest.remove_prefix(1);
    } else if (!rest.starts_with(' ') && !rest.starts_with('\t')) {
      continue;
    }
    return trimmed(rest);
  }
  return std::nullopt;
}

}  // namespace sterling::platform
