// A request's JSON body: strict parsing with limits, and a typed reader for its fields that says what is wrong and where.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json.hpp>

#include "serving/types.h"

namespace sterling::protocol {

using serving::Outcome;
using serving::RequestError;

// RFC 8259 and valid UTF-8, at most 64 levels deep, an object at the top. Of a key that stands twice the last one counts, as in
// Python. The body's size was limited when it was received.
Outcome<boost::json::object> parse_body(std::string_view body);

// "the string "abc"", "the number 5", "null", "an array", …, for messages; long strings are cut.
std::string describe(const boost::json::value& value);

// At most `bytes` of the text, whole characters.
std::string_view shorten(std::string_view utf8, std::size_t bytes);

RequestError invalid_value(std::string param, std::string message);
RequestError invalid_type(std::string param, const boost::json::value& found, std::string_view accepted);
RequestError unsupported(std::string param, std::string message);

// Reads one object. `null` counts as absent. The first error stays and every later read gives the default, so a parser reads
// all its fields in a row and looks at error() once. finish() then refuses every field that nobody asked for.
class FieldReader {
 public:
  FieldReader(const boost::json::object& object, std::string path) : object_(object), path_(std::move(path)) {}

  const boost::json::value* find(std::string_view name);
  bool boolean(std::string_view name, bool otherwise);
  std::optional<std::int64_t> integer(std::string_view name, std::int64_t min, std::int64_t max);
  std::optional<float> number(std::string_view name, double min, double max);
  std::optional<std::string> string(std::string_view name);
  std::vector<std::int32_t> token_ids(std::string_view name);

  // Fields that change nothing here.
  void ignore(std::initializer_list<std::string_view> names);
  // Refused when it asks for something: null, false, "", [] and {} do not. `advice` ends the message.
  void refuse(std::string_view name, std::string_view advice);

  void fail(RequestError error);
  void finish();
  bool failed() const { return error_.has_value(); }
  const std::optional<RequestError>& error() const { return error_; }
  std::string path(std::string_view name) const;  // "messages[2].role"

 private:
  const boost::json::object& object_;
  std::string path_;
  std::vector<std::string_view> known_;
  std::optional<RequestError> error_;
};

// An integer, or a double that is one. Nothing when it is neither or beyond 64 bits.
std::optional<std::int64_t> as_integer(const boost::json::value& value);

// A list of ids that fit 32 bits (whether the model has them is the service's to say).
Outcome<std::vector<std::int32_t>> read_token_ids(const boost::json::array& list, const std::string& path);

}  // namespace sterling::protocol
