#include "formats/object_reader.h"

#include <cmath>
#include <deque>
#include <limits>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "formats/json.h"
#include "formats/message.h"

namespace sterling::formats {

namespace {

namespace json = boost::json;

const json::object& empty_object() {
  static const json::object kEmpty;
  return kEmpty;
}

std::string_view view(const json::string& text) {
  return {text.data(), text.size()};
}

std::string integer_range(std::int64_t min, std::int64_t max) {
  constexpr auto kLowest = std::numeric_limits<std::int64_t>::min();
  constexpr auto kHighest = std::numeric_limits<std::int64_t>::max();
  if (min == kLowest && max == kHighest) return "an integer";
  if (max == kHighest) return fmt::format("an integer of at least {}", min);
  return fmt::format("an integer from {} to {}", min, max);
}

std::string number_range(double min, double max) {
  if (std::isinf(min) && std::isinf(max)) return "a number";
  if (std::isinf(max)) return fmt::format("a number of at least {}", min);
  return fmt::format("a number from {} to {}", min, max);
}

double within(double min, double max) {
  return std::isfinite(min) ? min : std::isfinite(max) ? max : 0.0;
}

}  // namespace

struct ObjectReader::State {
  struct Opened {
    const json::object* object;
    std::string path;
    std::set<std::string, std::less<>> read;
  };

  Opened& open(const json::object* object, const std::string& path) {
    for (Opened& known : opened) {
      if (known.object == object && known.path == path) return known;
    }
    return opened.emplace_back(Opened{object, path, {}});
  }

  std::string file;
  std::deque<Opened> opened;
  std::optional<Error> error;
};

ObjectReader::ObjectReader(const json::object& object, std::string_view file, std::string_view path)
    : ObjectReader(&object, std::string(path), std::make_shared<State>()) {
  state_->file = file;
}

ObjectReader::ObjectReader(const json::object* object, std::string path, std::shared_ptr<State> state)
    : object_(object), path_(std::move(path)), state_(std::move(state)) {
  state_->open(object_, path_);
}

bool ObjectReader::has(std::string_view key) const {
  const json::value* value = object_->if_contains({key.data(), key.size()});
  return value != nullptr && !value->is_null();
}

const json::value* ObjectReader::find(std::string_view key) const {
  state_->open(object_, path_).read.emplace(key);
  const json::value* value = object_->if_contains({key.data(), key.size()});
  return value == nullptr || value->is_null() ? nullptr : value;
}

const json::value* ObjectReader::require(std::string_view key) const {
  const json::value* value = find(key);
  if (value == nullptr && !state_->error) {
    const std::string path = path_of(key);
    const bool null = object_->contains({key.data(), key.size()});
    state_->error =
        make_error(ErrorCode::kCorrupt, fmt::format("{}: {} is {}", state_->file, path, null ? "null" : "missing"),
                   state_->file + ":" + path);
  }
  return value;
}

void ObjectReader::fail(std::string_view key, std::string_view problem, ErrorCode code) const {
  if (state_->error) return;
  const std::string path = path_of(key);
  state_->error = make_error(code, fmt::format("{}: {}: {}", state_->file, path, problem), state_->file + ":" + path);
}

void ObjectReader::wrong(std::string_view key, std::string_view expected, const json::value& found) const {
  fail(key, fmt::format("expected {}, found {}", expected, describe(found)));
}

std::int64_t ObjectReader::as_integer(std::string_view key, const json::value& value, std::int64_t min,
                                      std::int64_t max) const {
  const std::int64_t* number = value.if_int64();
  if (number == nullptr || *number < min || *number > max) {
    wrong(key, integer_range(min, max), value);
    return min;
  }
  return *number;
}

double ObjectReader::as_number(std::string_view key, const json::value& value, double min, double max) const {
  if (value.is_number()) {
    const double number = value.is_double()   ? value.get_double()
                          : value.is_uint64() ? static_cast<double>(value.get_uint64())
                                              : static_cast<double>(value.get_int64());
    if (number >= min && number <= max) return number;
  }
  wrong(key, number_range(min, max), value);
  return within(min, max);
}

bool ObjectReader::as_boolean(std::string_view key, const json::value& value) const {
  if (value.is_bool()) return value.get_bool();
  wrong(key, "true or false", value);
  return false;
}

std::string ObjectReader::as_string(std::string_view key, const json::value& value) const {
  if (value.is_string()) return std::string(view(value.get_string()));
  wrong(key, "a string", value);
  return {};
}

std::int64_t ObjectReader::integer(std::string_view key, std::int64_t min, std::int64_t max) const {
  const json::value* value = require(key);
  return value == nullptr ? min : as_integer(key, *value, min, max);
}

double ObjectReader::number(std::string_view key, double min, double max) const {
  const json::value* value = require(key);
  return value == nullptr ? within(min, max) : as_number(key, *value, min, max);
}

bool ObjectReader::boolean(std::string_view key) const {
  const json::value* value = require(key);
  return value != nullptr && as_boolean(key, *value);
}

std::string ObjectReader::string(std::string_view key) const {
  const json::value* value = require(key);
  return value == nullptr ? std::string() : as_string(key, *value);
}

std::string ObjectReader::one_of(std::string_view key, std::initializer_list<std::string_view> accepted) const {
  const json::value* value = require(key);
  if (value == nullptr) return {};
  std::string list;
  for (const std::string_view option : accepted) {
    if (value->is_string() && view(value->get_string()) == option) return std::string(option);
    list += (list.empty() ? "" : ", ") + quote(option);
  }
  wrong(key, (accepted.size() > 1 ? "one of " : "") + list, *value);
  return {};
}

std::vector<std::string> ObjectReader::strings(std::string_view key) const {
  if (require(key) == nullptr) return {};
  return optional_strings(key).value_or(std::vector<std::string>{});
}

std::optional<std::vector<std::string>> ObjectReader::optional_strings(std::string_view key) const {
  const json::value* value = find(key);
  if (value == nullptr) return std::nullopt;
  std::vector<std::string> out;
  if (!value->is_array()) {
    wrong(key, "an array of strings", *value);
    return out;
  }
  for (const json::value& element : value->get_array()) {
    out.push_back(as_string(fmt::format("{}[{}]", key, out.size()), element));
  }
  return out;
}

std::vector<std::int64_t> ObjectReader::integers(std::string_view key, std::int64_t min, std::int64_t max) const {
  const json::value* value = require(key);
  std::vector<std::int64_t> out;
  if (value == nullptr) return out;
  if (!value->is_array()) {
    wrong(key, "an array of integers", *value);
    return out;
  }
  for (const json::value& element : value->get_array()) {
    out.push_back(as_integer(fmt::format("{}[{}]", key, out.size()), element, min, max));
  }
  return out;
}

std::vector<double> ObjectReader::numbers(std::string_view key, double min, double max) const {
  const json::value* value = require(key);
  std::vector<double> out;
  if (value == nullptr) return out;
  if (!value->is_array()) {
    wrong(key, "an array of numbers", *value);
    return out;
  }
  for (const json::value& element : value->get_array()) {
    out.push_back(as_number(fmt::format("{}[{}]", key, out.size()), element, min, max));
  }
  return out;
}

ObjectReader ObjectReader::object(std::string_view key) const {
  const json::value* value = require(key);
  if (value != nullptr && value->is_object()) return {&value->get_object(), path_of(key), state_};
  if (value != nullptr) wrong(key, "an object", *value);
  return {&empty_object(), path_of(key), state_};
}

std::optional<ObjectReader> ObjectReader::optional_object(std::string_view key) const {
  if (find(key) == nullptr) return std::nullopt;
  return object(key);
}

std::int64_t ObjectReader::integer_or(std::string_view key, std::int64_t fallback, std::int64_t min,
                                      std::int64_t max) const {
  return optional_integer(key, min, max).value_or(fallback);
}

double ObjectReader::number_or(std::string_view key, double fallback, double min, double max) const {
  return optional_number(key, min, max).value_or(fallback);
}

bool ObjectReader::boolean_or(std::string_view key, bool fallback) const {
  const json::value* value = find(key);
  return value == nullptr ? fallback : as_boolean(key, *value);
}

std::string ObjectReader::string_or(std::string_view key, std::string_view fallback) const {
  const json::value* value = find(key);
  return value == nullptr ? std::string(fallback) : as_string(key, *value);
}

std::optional<std::int64_t> ObjectReader::optional_integer(std::string_view key, std::int64_t min,
                                                           std::int64_t max) const {
  const json::value* value = find(key);
  if (value == nullptr) return std::nullopt;
  return as_integer(key, *value, min, max);
}

std::optional<double> ObjectReader::optional_number(std::string_view key, double min, double max) const {
  const json::value* value = find(key);
  if (value == nullptr) return std::nullopt;
  return as_number(key, *value, min, max);
}

std::optional<std::string> ObjectReader::optional_string(std::string_view key) const {
  const json::value* value = find(key);
  if (value == nullptr) return std::nullopt;
  return as_string(key, *value);
}

std::vector<std::int64_t> ObjectReader::integer_or_list(std::string_view key, std::int64_t min,
                                                        std::int64_t max) const {
  const json::value* value = find(key);
  if (value == nullptr) return {};
  if (value->is_array()) return integers(key, min, max);
  return {as_integer(key, *value, min, max)};
}

void ObjectReader::ignore(std::initializer_list<std::string_view> keys) const {
  State::Opened& known = state_->open(object_, path_);
  for (const std::string_view key : keys) known.read.emplace(key);
}

Status ObjectReader::status() const {
  if (state_->error) return *state_->error;
  return {};
}

std::vector<std::string> ObjectReader::unread() const {
  std::vector<std::string> paths;
  for (const State::Opened& opened : state_->opened) {
    for (const auto& pair : *opened.object) {
      const std::string_view key(pair.key().data(), pair.key().size());
      if (opened.read.contains(key)) continue;
      paths.push_back(opened.path.empty() ? std::string(key) : fmt::format("{}.{}", opened.path, key));
    }
  }
  return paths;
}

std::string ObjectReader::path_of(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

std::string_view ObjectReader::file() const {
  return state_->file;
}

}  // namespace sterling::formats
