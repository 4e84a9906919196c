// Runs Boost.JSON's event parser over a whole document and turns its errors into ours. Only for the .cc files of this module
// that read JSON (it pulls in the parser's implementation).
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string_view>

#include <boost/json/basic_parser_impl.hpp>
#include <fmt/format.h>

#include "base/status.h"
#include "formats/json.h"

namespace sterling::formats {

// "3:14", counted from 1; columns are bytes.
inline std::string line_column(std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t last = before.rfind('\n');
  const std::size_t column = before.size() - (last == std::string_view::npos ? 0 : last + 1) + 1;
  return fmt::format("{}:{}", line, column);
}

Error json_syntax_error(std::string_view text, std::size_t offset, std::string_view file, const JsonLimits& limits,
                        const boost::json::error_code& code);

// Handler: Boost.JSON's handler functions, and `std::optional<Error> error`, set by a function that returns false (with its
// error code set to boost::json::error::exception).
template <typename Handler>
Status drive_json(boost::json::basic_parser<Handler>& parser, std::string_view text, std::string_view file,
                  const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return make_error(ErrorCode::kResourceExhausted,
                      fmt::format("{}: the JSON has {} bytes, the limit is {}", file, text.size(), limits.max_bytes),
                      std::string(file));
  }
  boost::json::error_code code;
  const std::size_t used = parser.write_some(false, text.data(), text.size(), code);
  if (parser.handler().error) return *std::move(parser.handler().error);
  if (!code && used < text.size()) code = boost::json::error::extra_data;
  if (code) return json_syntax_error(text, used, file, limits, code);
  return {};
}

}  // namespace sterling::formats
