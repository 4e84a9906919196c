#include "config/units.h"

#include <array>
#include <cctype>
#include <charconv>
#include <cstddef>
#include <limits>
#include <utility>

namespace sterling::config {
namespace {

constexpr std::uint64_t kMaxBytes = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
constexpr double kMaxSeconds = 1e9;

struct Quantity {
  std::uint64_t whole = 0;
  double fraction = 0.0;  // in [0, 1)
  std::string suffix;     // lower case
};

// "12.5 GiB" -> 12, 0.5, "gib". No sign, no exponent, digits on both sides of a point.
std::optional<Quantity> parse_quantity(std::string_view text) {
  Quantity q;
  const char* const end = text.data() + text.size();
  const auto [after_whole, error] = std::from_chars(text.data(), end, q.whole);
  if (error != std::errc{}) return std::nullopt;
  const char* at = after_whole;
  if (at != end && *at == '.') {
    ++at;
    double weight = 1.0;
    const char* const first = at;
    for (; at != end && *at >= '0' && *at <= '9'; ++at) {
      weight /= 10;
      q.fraction += weight * (*at - '0');
    }
    if (at == first) return std::nullopt;
  }
  if (at != end && *at == ' ') ++at;
  for (; at != end; ++at) q.suffix.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(*at))));
  return q;
}

}  // namespace

std::optional<std::uint64_t> parse_bytes(std::string_view text) {
  static constexpr std::array<std::pair<std::string_view, std::uint64_t>, 10> kUnits = {{
      {"", 1},
      {"b", 1},
      {"kib", std::uint64_t{1} << 10},
      {"mib", std::uint64_t{1} << 20},
      {"gib", std::uint64_t{1} << 30},
      {"tib", std::uint64_t{1} << 40},
      {"kb", 1'000},
      {"mb", 1'000'000},
      {"gb", 1'000'000'000},
      {"tb", 1'000'000'000'000},
  }};
  const auto q = parse_quantity(text);
  if (!q) return std::nullopt;
  for (const auto& [suffix, unit] : kUnits) {
    if (q->suffix != suffix) continue;
    if (unit == 1 && q->fraction != 0.0) return std::nullopt;
    if (q->whole > kMaxBytes / unit) return std::nullopt;
    const auto fraction = static_cast<std::uint64_t>(q->fraction * static_cast<double>(unit) + 1e-3);
    const std::uint64_t bytes = q->whole * unit;
    if (fraction > kMaxBytes - bytes) return std::nullopt;
    return bytes + fraction;
  }
  return std::nullopt;
}

std::string format_bytes(std::uint64_t bytes) {
  static constexpr std::array<std::string_view, 5> kNames = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (unit + 1 < kNames.size() && (bytes >> (10 * (unit + 1))) != 0) ++unit;
  const std::uint64_t whole = bytes >> (10 * unit);
  const std::uint64_t rest = bytes - (whole << (10 * unit));
  std::string text = std::to_string(whole);
  // Thousandths, rounded down: a printed size never promises more than is there.
  const auto thousandths = static_cast<std::uint64_t>(static_cast<double>(rest) * 1000.0 /
                                                      static_cast<double>(std::uint64_t{1} << (10 * unit)));
  if (thousandths != 0) {
    std::string digits = std::to_string(1000 + thousandths).substr(1);
    while (digits.back() == '0') digits.pop_back();
    text += "." + digits;
  }
  return text + " " + std::string(kNames[unit]);
}

std::optional<double> parse_seconds(std::string_view text) {
  static constexpr std::array<std::pair<std::string_view, double>, 5> kUnits = {
      {{"", 1.0}, {"s", 1.0}, {"ms", 1e-3}, {"m", 60.0}, {"h", 3600.0}}};
  const auto q = parse_quantity(text);
  if (!q) return std::nullopt;
  for (const auto& [suffix, unit] : kUnits) {
    if (q->suffix != suffix) continue;
    const double seconds = (static_cast<double>(q->whole) + q->fraction) * unit;
    if (!(seconds <= kMaxSeconds)) return std::nullopt;
    return seconds;
  }
  return std::nullopt;
}

}  // namespace sterling::config
