// From what the user wrote (flags, environment, a configuration file) to one effective value per setting, each with its
// origin. Precedence: flag > environment > configuration file > default. Every source is checked, also where another one wins:
// a broken line in a file is told when it is written and not when the flag that hides it goes away.
//
// Pure: argv, environment and files are read by cli/ and handed in.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "config/config_file.h"
#include "config/setting.h"

namespace sterling::config {

enum class Origin { kDefault, kFile, kEnvironment, kFlag };
std::string_view origin_name(Origin origin);  // "default", "file", "environment", "flag"

// monostate: not set, or set to the setting's word ("auto"). Bytes are integers, times doubles in seconds, choices canonical.
using Value = std::variant<std::monostate, bool, std::int64_t, double, std::string>;

struct ResolvedValue {
  const Setting* setting = nullptr;
  Value value;
  Origin origin = Origin::kDefault;
  std::string source;  // "-c", "STERLING_PORT", "sterling.conf:3"; empty for a default
};

struct Sources {
  std::span<const std::string> args;                                 // after the command's name
  std::span<const std::pair<std::string, std::string>> environment;  // all of it; foreign names are ignored
  std::span<const FileEntry> file;
};

class Settings {
 public:
  // In the schema's order.
  std::span<const ResolvedValue> values() const { return values_; }
  const ResolvedValue& at(std::string_view key) const;  // the key must exist

  // The key must exist with the matching type. text() is empty when not set; the others need a value.
  std::string text(std::string_view key) const;
  bool boolean(std::string_view key) const;
  std::int64_t integer(std::string_view key) const;  // kInteger and kBytes
  double seconds(std::string_view key) const;
  std::optional<std::int64_t> optional_integer(std::string_view key) const;
  std::optional<double> optional_seconds(std::string_view key) const;
  std::optional<std::string> optional_text(std::string_view key) const;
  std::vector<std::string> list(std::string_view key) const;  // of a repeatable text, in the order given

  // Variables that look like ours and are none ("STERLING_PROT: no such setting; nearest: STERLING_PORT"). No errors: other
  // programs may own the name.
  std::span<const std::string> warnings() const { return warnings_; }

 private:
  friend class Resolver;
  std::vector<ResolvedValue> values_;
  std::vector<std::string> warnings_;
};

// kInvalidArgument, with the flag, variable or file line in `where`: an unknown flag or key (with the nearest match, or with
// advice when another engine knows it), a missing or unacceptable value, one setting given twice with different values.
// An environment variable that is empty counts as not set.
Expected<Settings> resolve(const Schema& schema, const Sources& sources);

// The value of setting `key` by flag or environment alone, for cli/ to find the configuration file before it can resolve.
std::optional<std::string> early_value(const Schema& schema, const Sources& sources, std::string_view key);

// Is -h or --help among the arguments (before a "--")?
bool asks_for_help(std::span<const std::string> args);

}  // namespace sterling::config
