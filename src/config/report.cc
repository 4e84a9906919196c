#include "config/report.h"

#include <sstream>
#include <vector>

#include <boost/json.hpp>

#include "config/value.h"

namespace sterling::config {
namespace {

constexpr std::string_view kMasked = "***";

std::string joined(const std::vector<std::string>& parts, const std::string& separator) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : separator) + part;
  return text;
}

// "--port N, -p N" without the placeholder; short flags first.
std::vector<std::string> spellings(const Setting& setting) {
  std::vector<std::string> all;
  for (const Alias& alias : setting.aliases) {
    if (!alias.spelling.empty() && !alias.spelling.starts_with("--")) all.emplace_back(alias.spelling);
  }
  all.push_back(flag_name(setting));
  for (const Alias& alias : setting.aliases) {
    if (alias.spelling.starts_with("--")) all.emplace_back(alias.spelling);
  }
  return all;
}

std::string default_shown(const Setting& setting) {
  if (setting.default_text.empty()) return setting.word.empty() ? "not set" : std::string(setting.word);
  return std::string(setting.default_text);
}

void wrap(std::ostringstream& out, const std::string& text, std::size_t indent, std::size_t width) {
  std::istringstream words(text);
  std::size_t column = 0;
  for (std::string word; words >> word;) {
    if (column != 0 && column + 1 + word.size() > width) {
      out << '\n';
      column = 0;
    }
    if (column == 0) {
      out << std::string(indent, ' ');
      column = indent;
    } else {
      out << ' ';
      ++column;
    }
    out << word;
    column += word.size();
  }
  out << '\n';
}

// Python's repr of a string, as far as log readers care: quotes and backslashes escaped, control bytes as \xNN.
std::string quoted(std::string_view text) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out = "'";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\'' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (byte < 0x20 || byte == 0x7f) {
      out += "\\x";
      out.push_back(kDigits[byte >> 4]);
      out.push_back(kDigits[byte & 15]);
    } else {
      out.push_back(c);
    }
  }
  return out + "'";
}

std::string args_value(const ResolvedValue& resolved) {
  const Value& value = resolved.value;
  if (std::holds_alternative<std::monostate>(value)) {
    return resolved.setting->word.empty() ? "None" : quoted(resolved.setting->word);
  }
  if (resolved.setting->secret) return quoted(kMasked);
  if (const bool* truth = std::get_if<bool>(&value)) return *truth ? "True" : "False";
  if (const std::string* text = std::get_if<std::string>(&value)) return quoted(*text);
  return value_text(*resolved.setting, value);
}

boost::json::value json_value(const ResolvedValue& resolved) {
  const Value& value = resolved.value;
  if (std::holds_alternative<std::monostate>(value)) {
    if (resolved.setting->word.empty()) return nullptr;
    return boost::json::string(resolved.setting->word);
  }
  if (resolved.setting->secret) return boost::json::string(kMasked);
  if (const bool* truth = std::get_if<bool>(&value)) return *truth;
  if (const std::int64_t* number = std::get_if<std::int64_t>(&value)) return *number;
  if (const double* number = std::get_if<double>(&value)) return *number;
  return boost::json::string(std::get<std::string>(value));
}

}  // namespace

std::string help_text(const Schema& schema, std::size_t width) {
  std::ostringstream out;
  for (const Setting& setting : schema.settings) {
    out << "  " << joined(spellings(setting), ", ");
    if (setting.type != SettingType::kBoolean) out << ' ' << setting.placeholder;
    out << '\n';
    std::string text = std::string(setting.help) + " [default: " + default_shown(setting);
    if (setting.type != SettingType::kText && setting.type != SettingType::kPath &&
        setting.type != SettingType::kBoolean) {
      text += "; " + accepted_text(setting);
    }
    wrap(out, text + "]", 6, width);
  }
  return out.str();
}

std::string args_line(const Settings& settings) {
  std::vector<std::string> parts;
  for (const ResolvedValue& resolved : settings.values()) {
    parts.push_back(std::string(resolved.setting->key) + "=" + args_value(resolved));
  }
  return "server_args=ServerArgs(" + joined(parts, ", ") + ")";
}

std::string settings_json(const Settings& settings) {
  boost::json::object all;
  for (const ResolvedValue& resolved : settings.values()) {
    boost::json::object entry;
    entry["value"] = json_value(resolved);
    entry["origin"] = boost::json::string(origin_name(resolved.origin));
    if (resolved.source.empty()) {
      entry["source"] = nullptr;
    } else {
      entry["source"] = resolved.source;
    }
    entry["effect"] = boost::json::string(effect_name(resolved.setting->effect));
    all[boost::json::string_view(resolved.setting->key.data(), resolved.setting->key.size())] = std::move(entry);
  }
  return boost::json::serialize(all);
}

std::string settings_markdown(const Schema& schema) {
  std::ostringstream out;
  out << "# Settings of `sterling " << schema.command << "`\n\n"
      << "Generated from `src/config/serve_settings.cc`; a test fails when this page is older than the table.\n\n"
      << "Precedence: flag, then environment, then configuration file (`--config FILE`: one JSON object, or lines\n"
      << "`key = value`), then default. Flags may be written with `-` or `_`. Every effective value and where it came "
         "from is\n"
      << "logged at start.\n\n"
      << "The effect says what a change can do: **results** (the numbers, and so the text, may differ), **speed** "
         "(same\n"
      << "bits), **capacity** (same bits; how much fits and when a request is refused), **interface**.\n";
  for (const Setting& setting : schema.settings) {
    out << "\n## `" << setting.key << "`\n\n" << setting.help << "\n\n";
    out << "- flag: `" << joined(spellings(setting), "`, `") << "`";
    if (setting.positional) out << ", or the argument without a flag";
    out << "\n- environment: `" << environment_name(setting) << "`\n";
    out << "- accepted: " << accepted_text(setting) << "\n";
    out << "- default: " << default_shown(setting) << "\n";
    out << "- effect: " << effect_name(setting.effect) << "\n";
    out << "- changes without a restart: " << (setting.reloadable ? "yes" : "no") << "\n";
    std::vector<std::string> others;
    for (const Alias& alias : setting.aliases) {
      if (!alias.engine.empty())
        others.push_back("`" + std::string(alias.spelling) + "` (" + std::string(alias.engine) + ")");
    }
    if (!others.empty()) out << "- also spelled: " << joined(others, ", ") << "\n";
  }
  if (!schema.foreign.empty()) {
    out << "\n## Flags of other engines without a counterpart\n\nThey are refused with this advice.\n\n"
        << "| flag | engine | here |\n|---|---|---|\n";
    for (const ForeignFlag& foreign : schema.foreign) {
      out << "| `" << foreign.flag << "` | " << foreign.engine << " | " << foreign.advice << " |\n";
    }
  }
  return out.str();
}

}  // namespace sterling::config
