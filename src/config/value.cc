#include "config/value.h"

#include <cctype>
#include <charconv>
#include <vector>

#include "config/nearest.h"
#include "config/units.h"

namespace sterling::config {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

Error not_accepted(const Setting& setting, std::string_view text, const std::string& where,
                   const std::string& hint = {}) {
  constexpr std::size_t kShown = 120;
  // A secret's wrong value may be most of the right one.
  std::string shown = setting.secret ? "the value given" : "'" + std::string(text.substr(0, kShown)) + "'";
  if (!setting.secret && text.size() > kShown) shown += "…";
  return make_error(ErrorCode::kInvalidArgument,
                    where + ": " + shown + " is not accepted; accepted: " + accepted_text(setting) + hint, where);
}

Expected<Value> parse_integer(const Setting& setting, std::string_view text, const std::string& where) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return not_accepted(setting, text, where);
  if (number < setting.min || number > setting.max) return not_accepted(setting, text, where);
  return Value(number);
}

Expected<Value> parse_size(const Setting& setting, std::string_view text, const std::string& where) {
  const auto bytes = parse_bytes(text);
  if (!bytes) {
    const bool bare = !text.empty() && std::string_view("kmgtKMGT").find(text.back()) != std::string_view::npos;
    return not_accepted(
        setting, text, where,
        bare ? " (write " + std::string(text) + "iB for powers of 1024, " + std::string(text) + "B for powers of 1000)"
             : "");
  }
  const auto number = static_cast<std::int64_t>(*bytes);
  if (number < setting.min || number > setting.max) return not_accepted(setting, text, where);
  return Value(number);
}

Expected<Value> parse_time(const Setting& setting, std::string_view text, const std::string& where) {
  const auto seconds = parse_seconds(text);
  if (!seconds) return not_accepted(setting, text, where);
  if (*seconds < static_cast<double>(setting.min) || *seconds > static_cast<double>(setting.max)) {
    return not_accepted(setting, text, where);
  }
  return Value(*seconds);
}

Expected<Value> parse_boolean(const Setting& setting, std::string_view text, const std::string& where) {
  const std::string word = lower(text);
  if (word == "true" || word == "1" || word == "yes" || word == "on") return Value(true);
  if (word == "false" || word == "0" || word == "no" || word == "off") return Value(false);
  return not_accepted(setting, text, where);
}

Expected<Value> parse_choice(const Setting& setting, std::string_view text, const std::string& where) {
  const std::string word = lower(text);
  std::vector<std::string> names;
  for (const Choice& choice : setting.choices) {
    if (choice.value.empty()) break;
    if (word == choice.value) return Value(std::string(choice.means.empty() ? choice.value : choice.means));
    names.emplace_back(choice.value);
  }
  const std::string near = nearest(word, names);
  return not_accepted(setting, text, where, near.empty() ? "" : "; did you mean " + near + "?");
}

std::string number_text(double value) {
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), value);
  return error == std::errc{} ? std::string(buffer, end) : std::string();
}

}  // namespace

Expected<Value> parse_value(const Setting& setting, std::string_view text, const std::string& where) {
  if (!setting.word.empty() && lower(text) == setting.word) return Value(std::monostate{});
  switch (setting.type) {
    case SettingType::kText:
    case SettingType::kPath:
      if (text.empty()) return not_accepted(setting, text, where, " that is not empty");
      if (text.find('\0') != std::string_view::npos) return not_accepted(setting, text, where, " without NUL bytes");
      return Value(std::string(text));
    case SettingType::kBoolean: return parse_boolean(setting, text, where);
    case SettingType::kInteger: return parse_integer(setting, text, where);
    case SettingType::kBytes: return parse_size(setting, text, where);
    case SettingType::kSeconds: return parse_time(setting, text, where);
    case SettingType::kChoice: return parse_choice(setting, text, where);
  }
  return not_accepted(setting, text, where);
}

std::string value_text(const Setting& setting, const Value& value) {
  if (std::holds_alternative<bool>(value)) return std::get<bool>(value) ? "true" : "false";
  if (std::holds_alternative<std::int64_t>(value)) return std::to_string(std::get<std::int64_t>(value));
  if (std::holds_alternative<double>(value)) return number_text(std::get<double>(value));
  if (std::holds_alternative<std::string>(value)) return std::get<std::string>(value);
  return std::string(setting.word);
}

}  // namespace sterling::config
