#include "config/resolver.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "config/nearest.h"
#include "config/value.h"

namespace sterling::config {
namespace {

std::string with_dashes(std::string_view text) {
  std::string out(text);
  std::replace(out.begin(), out.end(), '_', '-');
  return out;
}

bool is_long_flag(std::string_view text) {
  return text.size() > 2 && text.starts_with("--");
}

// Between the values of a repeatable setting; no flag, variable or line of a file can hold it inside a value that makes sense.
constexpr char kListSeparator = '\n';

Error invalid(const std::string& where, const std::string& message) {
  return make_error(ErrorCode::kInvalidArgument, where + ": " + message, where);
}

std::string did_you_mean(const std::string& near) {
  return near.empty() ? std::string() : "; did you mean " + near + "?";
}

// Which setting a flag means, and how. Flags are compared with '_' read as '-', as vLLM and SGLang do.
struct FlagMatch {
  const Setting* setting = nullptr;
  bool negated = false;  // --no-strict
};

FlagMatch match_flag(const Schema& schema, std::string_view spelled) {
  const std::string flag = is_long_flag(spelled) ? with_dashes(spelled) : std::string(spelled);
  for (const Setting& setting : schema.settings) {
    const std::string own = flag_name(setting);
    if (flag == own) return {&setting, false};
    if (setting.type == SettingType::kBoolean && flag == "--no-" + own.substr(2)) return {&setting, true};
    for (const Alias& alias : setting.aliases) {
      if (!alias.spelling.empty() && flag == alias.spelling) return {&setting, false};
    }
  }
  return {};
}

Error unknown_flag(const Schema& schema, const std::string& flag) {
  const std::string spelled = with_dashes(flag);
  for (const ForeignFlag& foreign : schema.foreign) {
    if (spelled == foreign.flag) {
      return invalid(flag, "is a flag of " + std::string(foreign.engine) + "; " + std::string(foreign.advice));
    }
  }
  std::vector<std::string> known = {"--help"};
  for (const Setting& setting : schema.settings) {
    known.push_back(flag_name(setting));
    for (const Alias& alias : setting.aliases) {
      if (is_long_flag(alias.spelling)) known.emplace_back(alias.spelling);
    }
  }
  const std::string near = is_long_flag(spelled) ? nearest(spelled, known) : std::string();
  return invalid(
      flag, "no such flag" + did_you_mean(near) + " (sterling " + std::string(schema.command) + " --help lists all)");
}

// A key of a configuration file: the setting's own or any long alias, with '_' or '-'.
const Setting* match_key(const Schema& schema, std::string_view key) {
  return match_flag(schema, "--" + std::string(key)).setting;
}

}  // namespace

std::string_view origin_name(Origin origin) {
  switch (origin) {
    case Origin::kDefault: return "default";
    case Origin::kFile: return "file";
    case Origin::kEnvironment: return "environment";
    case Origin::kFlag: return "flag";
  }
  return "default";
}

// Applies the sources from weakest to strongest onto the table of defaults.
class Resolver {
 public:
  explicit Resolver(const Schema& schema) : schema_(schema) {}

  Expected<Settings> resolve(const Sources& sources) {
    for (const Setting& setting : schema_.settings) {
      ResolvedValue resolved;
      resolved.setting = &setting;
      if (!setting.default_text.empty()) {
        auto value = parse_value(setting, setting.default_text, "default of " + std::string(setting.key));
        STERLING_CHECK(value.ok());  // the table's own text
        resolved.value = std::move(value).value();
      }
      settings_.values_.push_back(std::move(resolved));
    }
    if (Status status = apply_file(sources.file); !status.ok()) return status.error();
    if (Status status = apply_environment(sources.environment); !status.ok()) return status.error();
    if (Status status = apply_args(sources.args); !status.ok()) return status.error();
    return std::move(settings_);
  }

 private:
  Status set(const Setting& setting, std::string_view text, Origin origin, const std::string& source) {
    auto parsed = parse_value(setting, text, source);
    if (!parsed.ok()) return parsed.error();
    ResolvedValue& resolved = settings_.values_[static_cast<std::size_t>(&setting - schema_.settings.data())];
    if (resolved.origin == origin && setting.repeatable) {
      const auto& earlier = std::get<std::string>(resolved.value);
      resolved.value = earlier + kListSeparator + std::get<std::string>(*parsed);
      return {};
    }
    if (resolved.origin == origin && resolved.value != *parsed) {
      const std::string first = setting.secret ? "another value" : "'" + value_text(setting, resolved.value) + "'";
      const std::string second = setting.secret ? "this one" : "'" + value_text(setting, *parsed) + "'";
      return invalid(source, std::string(setting.key) + " is given twice: " + first + " by " + resolved.source +
                                 ", then " + second + " by " + source);
    }
    resolved.value = std::move(parsed).value();
    resolved.origin = origin;
    resolved.source = source;
    return {};
  }

  Status apply_file(std::span<const FileEntry> entries) {
    for (const FileEntry& entry : entries) {
      const Setting* setting = match_key(schema_, entry.key);
      if (setting == nullptr) {
        std::vector<std::string> keys;
        for (const Setting& each : schema_.settings) keys.emplace_back(each.key);
        return invalid(entry.where,
                       "no setting is called '" + entry.key + "'" + did_you_mean(nearest(entry.key, keys)));
      }
      if (Status status = set(*setting, entry.value, Origin::kFile, entry.where); !status.ok()) return status;
    }
    return {};
  }

  Status apply_environment(std::span<const std::pair<std::string, std::string>> environment) {
    std::vector<std::string> names;
    for (const Setting& setting : schema_.settings) names.push_back(environment_name(setting));
    for (const auto& [name, value] : environment) {
      if (!name.starts_with("STERLING_")) continue;
      const auto found = std::find(names.begin(), names.end(), name);
      if (found == names.end()) {
        const std::string near = nearest(name, names);
        settings_.warnings_.push_back(name + ": no such setting" + (near.empty() ? "" : "; nearest: " + near));
        continue;
      }
      if (value.empty()) continue;
      const Setting& setting = schema_.settings[static_cast<std::size_t>(found - names.begin())];
      if (Status status = set(setting, value, Origin::kEnvironment, name); !status.ok()) return status;
    }
    return {};
  }

  Status apply_args(std::span<const std::string> args) {
    bool flags_over = false;
    for (std::size_t i = 0; i < args.size(); ++i) {
      const std::string& arg = args[i];
      if (!flags_over && arg == "--") {
        flags_over = true;
      } else if (!flags_over && arg.size() > 1 && arg.front() == '-') {
        if (Status status = apply_flag(args, &i); !status.ok()) return status;
      } else {
        if (Status status = apply_positional(arg); !status.ok()) return status;
      }
    }
    return {};
  }

  // args[*i] is a flag; takes its value too when that stands apart.
  Status apply_flag(std::span<const std::string> args, std::size_t* i) {
    const std::string& arg = args[*i];
    const std::size_t equals = is_long_flag(arg) ? arg.find('=') : std::string::npos;
    const std::string flag = arg.substr(0, equals);
    const FlagMatch match = match_flag(schema_, flag);
    if (match.setting == nullptr) return unknown_flag(schema_, flag);
    if (equals != std::string::npos) {
      if (match.negated) return invalid(flag, "takes no value, found '" + arg.substr(equals + 1) + "'");
      return set(*match.setting, std::string_view(arg).substr(equals + 1), Origin::kFlag, flag);
    }
    if (match.setting->type == SettingType::kBoolean) {
      return set(*match.setting, match.negated ? "false" : "true", Origin::kFlag, flag);
    }
    const bool last = *i + 1 == args.size();
    if (last || match_flag(schema_, args[*i + 1]).setting != nullptr) {
      return invalid(flag, "needs a value, found " + (last ? "nothing" : "the flag " + args[*i + 1]) +
                               "; accepted: " + accepted_text(*match.setting));
    }
    ++*i;
    return set(*match.setting, args[*i], Origin::kFlag, flag);
  }

  Status apply_positional(const std::string& arg) {
    for (const Setting& setting : schema_.settings) {
      if (!setting.positional) continue;
      const ResolvedValue& now = settings_.at(setting.key);
      if (now.origin == Origin::kFlag && now.value != Value(arg)) {
        return invalid(arg, "unexpected argument; " + std::string(setting.placeholder) + " is '" +
                                value_text(setting, now.value) + "' already");
      }
      return set(setting, arg, Origin::kFlag, std::string(setting.placeholder));
    }
    return invalid(arg, "unexpected argument; " + std::string(schema_.command) + " takes flags only");
  }

  const Schema& schema_;
  Settings settings_;
};

const ResolvedValue& Settings::at(std::string_view key) const {
  const auto found =
      std::find_if(values_.begin(), values_.end(), [&](const ResolvedValue& each) { return each.setting->key == key; });
  STERLING_CHECK(found != values_.end());
  return *found;
}

std::string Settings::text(std::string_view key) const {
  return optional_text(key).value_or(std::string());
}

bool Settings::boolean(std::string_view key) const {
  const bool* value = std::get_if<bool>(&at(key).value);
  STERLING_CHECK(value != nullptr);
  return *value;
}

std::int64_t Settings::integer(std::string_view key) const {
  const auto value = optional_integer(key);
  STERLING_CHECK(value.has_value());
  return *value;
}

double Settings::seconds(std::string_view key) const {
  const auto value = optional_seconds(key);
  STERLING_CHECK(value.has_value());
  return *value;
}

std::optional<std::int64_t> Settings::optional_integer(std::string_view key) const {
  const auto* value = std::get_if<std::int64_t>(&at(key).value);
  return value == nullptr ? std::nullopt : std::optional(*value);
}

std::optional<double> Settings::optional_seconds(std::string_view key) const {
  const auto* value = std::get_if<double>(&at(key).value);
  return value == nullptr ? std::nullopt : std::optional(*value);
}

std::optional<std::string> Settings::optional_text(std::string_view key) const {
  const auto* value = std::get_if<std::string>(&at(key).value);
  return value == nullptr ? std::nullopt : std::optional(*value);
}

std::vector<std::string> Settings::list(std::string_view key) const {
  STERLING_CHECK(at(key).setting->repeatable);
  std::vector<std::string> values;
  const auto text = optional_text(key);
  if (!text) return values;
  for (std::size_t begin = 0; begin <= text->size();) {
    const std::size_t end = std::min(text->find(kListSeparator, begin), text->size());
    values.push_back(text->substr(begin, end - begin));
    begin = end + 1;
  }
  return values;
}

Expected<Settings> resolve(const Schema& schema, const Sources& sources) {
  return Resolver(schema).resolve(sources);
}

std::optional<std::string> early_value(const Schema& schema, const Sources& sources, std::string_view key) {
  const Setting* wanted = find_setting(schema, key);
  STERLING_CHECK(wanted != nullptr);
  for (std::size_t i = 0; i < sources.args.size() && sources.args[i] != "--"; ++i) {
    const std::string& arg = sources.args[i];
    const std::size_t equals = is_long_flag(arg) ? arg.find('=') : std::string::npos;
    const Setting* setting = match_flag(schema, arg.substr(0, equals)).setting;
    if (setting == nullptr) continue;
    const bool value_apart = equals == std::string::npos && setting->type != SettingType::kBoolean;
    if (setting == wanted && equals != std::string::npos) return arg.substr(equals + 1);
    if (setting == wanted && value_apart && i + 1 < sources.args.size()) return sources.args[i + 1];
    if (value_apart) ++i;  // another flag's value is no flag
  }
  for (const auto& [name, value] : sources.environment) {
    if (name == environment_name(*wanted) && !value.empty()) return value;
  }
  return std::nullopt;
}

bool asks_for_help(std::span<const std::string> args) {
  for (const std::string& arg : args) {
    if (arg == "--") return false;
    if (arg == "-h" || arg == "--help") return true;
  }
  return false;
}

}  // namespace sterling::config
