#include "protocol/request_body.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

namespace sterling::protocol {
namespace {

constexpr std::size_t kMaxDepth = 64;
constexpr std::size_t kQuotedBytes = 40;

RequestError bad_body(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), {}, "invalid_json"};
}

bool asks_for_nothing(const boost::json::value& value) {
  if (value.is_null()) return true;
  if (value.is_bool()) return !value.get_bool();
  if (value.is_string()) return value.get_string().empty();
  if (value.is_array()) return value.get_array().empty();
  return value.is_object() && value.get_object().empty();
}

}  // namespace

Outcome<boost::json::object> parse_body(std::string_view body) {
  if (body.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    return bad_body("the request has no body; accepted: a JSON object");
  }
  boost::json::parse_options options;
  options.max_depth = kMaxDepth;
  try {
    boost::json::stream_parser parser({}, options);
    boost::json::error_code error;
    const std::size_t at = parser.write(body.data(), body.size(), error);
    if (!error) parser.finish(error);
    if (error == boost::json::error::too_deep) {
      return bad_body(
          fmt::format("the body is nested too deeply at byte {}; accepted: at most {} levels", at, kMaxDepth));
    }
    if (error) return bad_body(fmt::format("the body is not valid JSON at byte {}: {}", at, error.message()));
    boost::json::value value = parser.release();
    if (!value.is_object()) return bad_body(fmt::format("the body is {}; accepted: a JSON object", describe(value)));
    return std::move(value.get_object());
  } catch (const std::exception& e) {
    return RequestError{
        ErrorCode::kResourceExhausted, fmt::format("the body cannot be held in memory ({})", e.what()), {}, {}};
  }
}

std::string describe(const boost::json::value& value) {
  switch (value.kind()) {
    case boost::json::kind::null: return "null";
    case boost::json::kind::bool_: return value.get_bool() ? "true" : "false";
    case boost::json::kind::array: return "an array";
    case boost::json::kind::object: return "an object";
    case boost::json::kind::string: {
      std::string_view text = value.get_string();
      if (text.size() <= kQuotedBytes) return "the string " + boost::json::serialize(boost::json::string(text));
      return fmt::format("the string {}… ({} bytes)",
                         boost::json::serialize(boost::json::string(shorten(text, kQuotedBytes))), text.size());
    }
    case boost::json::kind::double_: return fmt::format("the number {}", value.get_double());
    default: return "the number " + boost::json::serialize(value);
  }
}

std::string_view shorten(std::string_view utf8, std::size_t bytes) {
  if (utf8.size() <= bytes) return utf8;
  while (bytes > 0 && (static_cast<unsigned char>(utf8[bytes]) & 0xC0U) == 0x80U) --bytes;
  return utf8.substr(0, bytes);
}

RequestError invalid_value(std::string param, std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), std::move(param), serving::kInvalidValue};
}

RequestError invalid_type(std::string param, const boost::json::value& found, std::string_view accepted) {
  std::string message = fmt::format("{} is {}; accepted: {}", param, describe(found), accepted);
  return {ErrorCode::kInvalidArgument, std::move(message), std::move(param), serving::kInvalidType};
}

RequestError unsupported(std::string param, std::string message) {
  return {ErrorCode::kUnsupported, std::move(message), std::move(param), serving::kUnsupportedParameter};
}

std::optional<std::int64_t> as_integer(const boost::json::value& value) {
  if (value.is_int64()) return value.get_int64();
  if (value.is_double() && std::trunc(value.get_double()) == value.get_double() &&
      std::abs(value.get_double()) < 0x1p63) {
    return static_cast<std::int64_t>(value.get_double());
  }
  return std::nullopt;
}

Outcome<std::vector<std::int32_t>> read_token_ids(const boost::json::array& list, const std::string& path) {
  std::vector<std::int32_t> out;
  out.reserve(list.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::optional<std::int64_t> id = as_integer(list[i]);
    if (!id || *id < std::numeric_limits<std::int32_t>::min() || *id > std::numeric_limits<std::int32_t>::max()) {
      const std::string where = fmt::format("{}[{}]", path, i);
      if (list[i].is_number() && (id || !list[i].is_double())) {
        return invalid_value(where, fmt::format("{} is {}; no model has such a token id", where, describe(list[i])));
      }
      return invalid_type(where, list[i], "a token id");
    }
    out.push_back(static_cast<std::int32_t>(*id));
  }
  return out;
}

std::string FieldReader::path(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

void FieldReader::fail(RequestError error) {
  if (!error_) error_ = std::move(error);
}

const boost::json::value* FieldReader::find(std::string_view name) {
  known_.push_back(name);
  const boost::json::value* value = object_.if_contains(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

bool FieldReader::boolean(std::string_view name, bool otherwise) {
  const boost::json::value* value = find(name);
  if (value == nullptr) return otherwise;
  if (value->is_bool()) return value->get_bool();
  fail(invalid_type(path(name), *value, "true or false"));
  return otherwise;
}

std::optional<std::int64_t> FieldReader::integer(std::string_view name, std::int64_t min, std::int64_t max) {
  const boost::json::value* value = find(name);
  if (value == nullptr) return std::nullopt;
  const std::string accepted = max == std::numeric_limits<std::int64_t>::max()
                                   ? fmt::format("an integer, at least {}", min)
                                   : fmt::format("an integer from {} to {}", min, max);
  const std::optional<std::int64_t> out = as_integer(*value);
  if (out && *out >= min && *out <= max) return out;
  if (!out && !value->is_uint64() && !(value->is_double() && std::abs(value->get_double()) >= 0x1p63)) {
    fail(invalid_type(path(name), *value, accepted));
  } else {
    fail(invalid_value(path(name), fmt::format("{} is {}; accepted: {}", path(name), describe(*value), accepted)));
  }
  return std::nullopt;
}

std::optional<float> FieldReader::number(std::string_view name, double min, double max) {
  const boost::json::value* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) {
    fail(invalid_type(path(name), *value, fmt::format("a number from {} to {}", min, max)));
    return std::nullopt;
  }
  const double number = value->to_number<double>();
  if (number >= min && number <= max) return static_cast<float>(number);
  fail(invalid_value(
      path(name), fmt::format("{} is {}; accepted: a number from {} to {}", path(name), describe(*value), min, max)));
  return std::nullopt;
}

std::optional<std::string> FieldReader::string(std::string_view name) {
  const boost::json::value* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return std::string(std::string_view(value->get_string()));
  fail(invalid_type(path(name), *value, "a string"));
  return std::nullopt;
}

std::vector<std::int32_t> FieldReader::token_ids(std::string_view name) {
  const boost::json::value* value = find(name);
  if (value == nullptr) return {};
  if (!value->is_array()) {
    fail(invalid_type(path(name), *value, "an array of token ids"));
    return {};
  }
  Outcome<std::vector<std::int32_t>> ids = read_token_ids(value->get_array(), path(name));
  if (ids) return std::move(*ids);
  fail(ids.error());
  return {};
}

void FieldReader::ignore(std::initializer_list<std::string_view> names) {
  known_.insert(known_.end(), names);
}

void FieldReader::refuse(std::string_view name, std::string_view advice) {
  const boost::json::value* value = find(name);
  if (value == nullptr || asks_for_nothing(*value)) return;
  fail(unsupported(path(name), fmt::format("{} is not supported: {}", path(name), advice)));
}

void FieldReader::finish() {
  if (error_) return;
  for (const auto& field : object_) {
    const std::string_view name = field.key();
    if (std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
    const std::string shown = path(shorten(name, 64));
    fail({ErrorCode::kInvalidArgument,
          fmt::format(
              "{} is not a field of this request; a field that nobody reads is refused, lest a misspelt one be taken "
              "for granted",
              shown),
          shown, serving::kUnknownParameter});
    return;
  }
}

}  // namespace sterling::protocol
