// Typed reading of a configuration object. Getters never fail on the spot: the first error is kept and the getter returns a
// value within the asked range, so that a struct can be filled line by line and status() looked at once at the end.
//
//   ObjectReader config(json, "config.json");
//   spec.hidden_size = config.integer("hidden_size", 1, 1 << 20);
//   spec.rope_theta = config.number_or("rope_theta", 10000.0, 1.0, 1e12);
//   if (auto scaling = config.optional_object("rope_scaling")) spec.factor = scaling->number("factor", 1.0, 1e6);
//   if (Status status = config.status(); !status) return status.error();
//
// Messages: "config.json: hidden_size is missing", "config.json: num_hidden_layers: expected an integer from 1 to 4096, found
// the string "two"". A null counts as absent, as in Hugging Face's files.
//
// Every getter marks its key as read; unread() lists the keys that nobody asked for, so that a setting which could change the
// arithmetic is never passed over in silence. Not thread-safe. Borrows the object, which must outlive the reader; copies and
// child readers share one state.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json.hpp>

#include "base/status.h"

namespace sterling::formats {

class ObjectReader {
 public:
  // `file` opens every message; `path` is the place of `object` in it ("" for the root, "text_config").
  ObjectReader(const boost::json::object& object, std::string_view file, std::string_view path = {});

  // Present and not null. Does not mark the key as read.
  bool has(std::string_view key) const;
  // The value, or nullptr when absent or null. Marks the key as read.
  const boost::json::value* find(std::string_view key) const;

  // Required. Bounds are inclusive.
  std::int64_t integer(std::string_view key, std::int64_t min, std::int64_t max) const;
  double number(std::string_view key, double min, double max) const;
  bool boolean(std::string_view key) const;
  std::string string(std::string_view key) const;
  std::string one_of(std::string_view key, std::initializer_list<std::string_view> accepted) const;
  std::vector<std::string> strings(std::string_view key) const;
  std::vector<std::int64_t> integers(std::string_view key, std::int64_t min, std::int64_t max) const;
  std::vector<double> numbers(std::string_view key, double min, double max) const;
  // On error a reader of an empty object.
  ObjectReader object(std::string_view key) const;

  // Optional: the fallback, or empty, when absent or null; wrong types and values are errors all the same.
  std::int64_t integer_or(std::string_view key, std::int64_t fallback, std::int64_t min, std::int64_t max) const;
  double number_or(std::string_view key, double fallback, double min, double max) const;
  bool boolean_or(std::string_view key, bool fallback) const;
  std::string string_or(std::string_view key, std::string_view fallback) const;
  std::optional<std::int64_t> optional_integer(std::string_view key, std::int64_t min, std::int64_t max) const;
  std::optional<double> optional_number(std::string_view key, double min, double max) const;
  std::optional<std::string> optional_string(std::string_view key) const;
  std::optional<std::vector<std::string>> optional_strings(std::string_view key) const;
  std::optional<ObjectReader> optional_object(std::string_view key) const;
  // One integer or a list of integers (eos_token_id); empty when absent.
  std::vector<std::int64_t> integer_or_list(std::string_view key, std::int64_t min, std::int64_t max) const;

  // Marks keys as known and without effect.
  void ignore(std::initializer_list<std::string_view> keys) const;
  // Records an error of the caller's at `key` unless there is one already: "config.json: <path of key>: <problem>".
  void fail(std::string_view key, std::string_view problem, ErrorCode code = ErrorCode::kCorrupt) const;

  // The first error of this reader and all readers made from it.
  Status status() const;
  // Full paths of keys that were not read, in file order, of this object and of the child objects that were opened.
  std::vector<std::string> unread() const;

  // "text_config.hidden_size"
  std::string path_of(std::string_view key) const;
  std::string_view file() const;
  const boost::json::object& json() const { return *object_; }

 private:
  struct State;
  ObjectReader(const boost::json::object* object, std::string path, std::shared_ptr<State> state);
  const boost::json::value* require(std::string_view key) const;
  void wrong(std::string_view key, std::string_view expected, const boost::json::value& found) const;
  std::int64_t as_integer(std::string_view key, const boost::json::value& value, std::int64_t min,
                          std::int64_t max) const;
  double as_number(std::string_view key, const boost::json::value& value, double min, double max) const;
  bool as_boolean(std::string_view key, const boost::json::value& value) const;
  std::string as_string(std::string_view key, const boost::json::value& value) const;

  const boost::json::object* object_;
  std::string path_;
  std::shared_ptr<State> state_;
};

}  // namespace sterling::formats
