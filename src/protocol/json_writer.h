// Appends compact JSON to a string: fields keep the order they are written in, floats keep their bits.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sterling::protocol {

class JsonWriter {
 public:
  explicit JsonWriter(std::string& out) : out_(out) {}

  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }
  JsonWriter& key(std::string_view name);

  JsonWriter& string(std::string_view utf8);
  JsonWriter& integer(std::int64_t value);
  JsonWriter& boolean(bool value) { return raw(value ? "true" : "false"); }
  JsonWriter& null() { return raw("null"); }
  // Nine significant digits: read back and rounded to FP32 they give the same bits.
  JsonWriter& float_exact(float value);
  // The fewest digits that do so, for people.
  JsonWriter& float_short(float value);
  // One JSON value written elsewhere.
  JsonWriter& raw(std::string_view json);

  // key and value in one.
  JsonWriter& field(std::string_view name, std::string_view value) { return key(name).string(value); }
  JsonWriter& field(std::string_view name, std::int64_t value) { return key(name).integer(value); }

 private:
  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);
  void comma();
  void quoted(std::string_view utf8);

  std::string& out_;
  bool needs_comma_ = false;
};

}  // namespace sterling::protocol
