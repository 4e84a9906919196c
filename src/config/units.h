// Sizes and times as people write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sterling::config {

// A number of bytes: digits with an optional fraction and suffix. B; KiB, MiB, GiB, TiB (powers of 1024); KB, MB, GB, TB (powers
// of 1000); upper or lower case, a blank before the suffix allowed. A bare "8G" is refused: it means either. Fractions of a
// byte are dropped. Nothing when it is no size or does not fit 63 bits.
std::optional<std::uint64_t> parse_bytes(std::string_view text);

// "512 B", "17.4 GiB": the largest binary unit that leaves at least 1, at most three decimals.
std::string format_bytes(std::uint64_t bytes);

// Seconds: digits with an optional fraction and suffix ms, s, m or h; seconds without one. At most 10^9.
std::optional<double> parse_seconds(std::string_view text);

}  // namespace sterling::config
