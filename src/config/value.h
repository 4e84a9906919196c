// One setting's value from its text.
#pragma once

#include <string_view>

#include "base/status.h"
#include "config/resolver.h"

namespace sterling::config {

// `where` names the place for messages: the flag as typed, the variable, the file line.
Expected<Value> parse_value(const Setting& setting, std::string_view text, const std::string& where);

// As a user would write it; empty for monostate without a word.
std::string value_text(const Setting& setting, const Value& value);

}  // namespace sterling::config
