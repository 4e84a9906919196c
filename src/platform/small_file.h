// Kernel text files (/proc, /sys): small, line oriented, often absent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sterling::platform {

// The whole file, at most 1 MiB; nothing when it can't be read.
std::optional<std::string> read_small_file(const std::string& path);

std::vector<std::string_view> split(std::string_view text, char separator);  // empty pieces included
std::vector<std::string_view> split_words(std::string_view text);            // at spaces, tabs and newlines

// All of `text` (blanks around it aside) as a decimal number.
std::optional<std::uint64_t> parse_unsigned(std::string_view text);

// The text after "Key:" or "Key" + blanks on the line that starts with it; trimmed.
std::optional<std::string_view> line_value(std::string_view text, std::string_view key);

}  // namespace sterling::platform
