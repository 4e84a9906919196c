#include "config/setting.h"

#include <algorithm>
#include <cctype>

#include "config/units.h"

namespace sterling::config {
namespace {

std::string replaced(std::string_view text, char from, char to) {
  std::string out(text);
  std::replace(out.begin(), out.end(), from, to);
  return out;
}

std::string range_text(const Setting& setting, const std::string& what, std::string (*print)(std::int64_t)) {
  if (setting.max == std::numeric_limits<std::int64_t>::max()) {
    return setting.min == 0 ? what : what + ", at least " + print(setting.min);
  }
  return what + " from " + print(setting.min) + " to " + print(setting.max);
}

}  // namespace

std::string flag_name(const Setting& setting) {
  return "--" + replaced(setting.key, '_', '-');
}

std::string environment_name(const Setting& setting) {
  std::string name = "STERLING_";
  for (const char c : setting.key) name.push_back(static_cast<char>(std::toupper(static_cast<unsigned char>(c))));
  return name;
}

std::string accepted_text(const Setting& setting) {
  const auto number = [](std::int64_t value) { return std::to_string(value); };
  std::string text;
  switch (setting.type) {
    case SettingType::kText: text = "a text"; break;
    case SettingType::kPath: text = "a path"; break;
    case SettingType::kBoolean: text = "true or false"; break;
    case SettingType::kInteger: text = range_text(setting, "an integer", number); break;
    case SettingType::kBytes:
      text = range_text(setting, "a size such as 8GiB, 500MB or a number of bytes",
                        [](std::int64_t value) { return format_bytes(static_cast<std::uint64_t>(value)); });
      break;
    case SettingType::kSeconds: text = range_text(setting, "a time in seconds, or such as 500ms, 5m", number); break;
    case SettingType::kChoice:
      for (const Choice& choice : setting.choices) {
        if (choice.value.empty()) break;
        if (!text.empty()) text += ", ";
        text += choice.value;
      }
      break;
  }
  if (!setting.word.empty()) text += ", or " + std::string(setting.word);
  return text;
}

std::string_view effect_name(Effect effect) {
  switch (effect) {
    case Effect::kResults: return "results";
    case Effect::kSpeed: return "speed";
    case Effect::kCapacity: return "capacity";
    case Effect::kInterface: return "interface";
  }
  return "interface";
}

std::string_view type_name(SettingType type) {
  switch (type) {
    case SettingType::kText: return "text";
    case SettingType::kPath: return "path";
    case SettingType::kBoolean: return "boolean";
    case SettingType::kInteger: return "integer";
    case SettingType::kBytes: return "size";
    case SettingType::kSeconds: return "time";
    case SettingType::kChoice: return "choice";
  }
  return "text";
}

const Setting* find_setting(const Schema& schema, std::string_view key) {
  for (const Setting& setting : schema.settings) {
    if (setting.key == key) return &setting;
  }
  return nullptr;
}

}  // namespace sterling::config
