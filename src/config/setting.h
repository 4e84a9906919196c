// One row per setting. From a row follow its flag, its environment variable, its key in a configuration file, its --help text,
// its place in the args line and in /server_info, and its entry in docs/settings.md: a new setting is one row in
// serve_settings.cc and nothing else here.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>

namespace sterling::config {

enum class SettingType {
  kText,
  kPath,
  kBoolean,
  kInteger,
  kBytes,    // units.h: "17.4GiB", "96GB", plain bytes
  kSeconds,  // units.h: "30", "500ms", "5m"
  kChoice,
};

// What a change of the setting can do to a deployment: the first question of whoever reads a diff of two configurations.
enum class Effect {
  kResults,    // the numbers, and so the text, may differ
  kSpeed,      // same bits, other speed
  kCapacity,   // same bits; how much fits, and when a request is refused
  kInterface,  // addresses, names, keys, logs
};

struct Alias {
  std::string_view spelling;  // a flag, "--ctx-size" or "-c"
  std::string_view engine;    // whose spelling it is
};

struct Choice {
  std::string_view value;
  std::string_view means = {};  // canonical value, when this one is only another word for it
};

struct Setting {
  std::string_view key = {};  // snake_case; flag --kebab-case, environment STERLING_UPPER_CASE
  SettingType type = SettingType::kText;
  std::string_view default_text = {};  // parsed like a user's text; empty: not set
  Effect effect = Effect::kInterface;
  std::string_view help = {};
  std::string_view placeholder = {};  // "N", "SIZE", "FILE"; in help and docs

  // A word accepted instead of a value ("auto", "none"); the setting then has no value and its user decides.
  std::string_view word = {};
  // Smallest and largest accepted number: integers, bytes, whole seconds.
  std::int64_t min = 0;
  std::int64_t max = std::numeric_limits<std::int64_t>::max();
  std::array<Choice, 16> choices = {};
  std::array<Alias, 6> aliases = {};

  bool positional = false;  // also the one argument without a flag
  bool repeatable = false;  // a text; the flag may be given several times, Settings::list() has all values
  bool secret = false;      // never printed
  bool reloadable = false;  // may change without a restart
};

// A flag of another engine that has no counterpart with the same meaning here, and what to do instead.
struct ForeignFlag {
  std::string_view flag;
  std::string_view engine;
  std::string_view advice;
};

struct Schema {
  std::string_view command;  // "serve"
  std::span<const Setting> settings;
  std::span<const ForeignFlag> foreign = {};
};

std::string flag_name(const Setting& setting);         // "--kv-cache-dtype"
std::string environment_name(const Setting& setting);  // "STERLING_KV_CACHE_DTYPE"
std::string accepted_text(const Setting& setting);     // "an integer from 0 to 65535", "bf16 or auto"
std::string_view effect_name(Effect effect);           // "results", "speed", "capacity", "interface"
std::string_view type_name(SettingType type);

const Setting* find_setting(const Schema& schema, std::string_view key);

}  // namespace sterling::config
