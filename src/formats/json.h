// JSON from outside: strict parsing with limits, and a typed reader for configuration objects. Pure functions, thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include <boost/json.hpp>

#include "base/status.h"

namespace sterling::formats {

struct JsonLimits {
  std::size_t max_bytes = std::size_t{64} << 20;
  std::size_t max_depth = 64;
};

// Strict JSON (RFC 8259): no comments, no trailing commas, valid UTF-8, numbers within a double's range (correctly rounded),
// no key twice in one object. Key order is kept. `file` stands at the head of the message:
// "config.json:3:14: syntax error" (line:column), "config.json: rope_scaling: the key "type" appears twice".
Expected<boost::json::value> parse_json(std::string_view text, std::string_view file, const JsonLimits& limits = {});

// The same, and the document is an object.
Expected<boost::json::object> parse_json_object(std::string_view text, std::string_view file,
                                                const JsonLimits& limits = {});

// Reads a file and parses it. kNotFound when it is absent.
Expected<boost::json::object> read_json_object(const std::filesystem::path& path, const JsonLimits& limits = {});

// For messages: "the string "two"", "the number -3", "null", "an array", "an object", "true".
std::string describe(const boost::json::value& value);

}  // namespace sterling::formats
