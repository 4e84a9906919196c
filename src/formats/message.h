// Helpers for error messages that quote foreign bytes. Pure functions, thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace sterling::formats {

// The text in double quotes, fit for a terminal and a log line: control characters, quotes and bytes that are not UTF-8 are
// escaped (\n, \", \x07), and a long text is cut with its length given.
std::string quote(std::string_view text);

// Well-formed UTF-8: no overlong forms, no surrogates, nothing beyond U+10FFFF.
bool is_valid_utf8(std::string_view text);

}  // namespace sterling::formats
