// What the table and the resolved settings look like to people and programs: --help, the args line of the log, the JSON of
// /server_info, docs/settings.md. Secrets show as *** everywhere.
#pragma once

#include <string>

#include "config/resolver.h"
#include "config/setting.h"

namespace sterling::config {

// The settings part of --help: per setting its flags, then the help text with default and accepted values, wrapped at `width`.
std::string help_text(const Schema& schema, std::size_t width = 100);

// One line, in the shape operators know from SGLang, effective values only: server_args=ServerArgs(model='…', port=8000, …).
std::string args_line(const Settings& settings);

// {"port": {"value": 8000, "origin": "flag", "source": "--port", "effect": "interface"}, …}; unset is null.
std::string settings_json(const Settings& settings);

// docs/settings.md, generated from the table.
std::string settings_markdown(const Schema& schema);

}  // namespace sterling::config
