// A file that a command was asked to write: checked before the work, written whole or not at all.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace sterling::cli {

// Whether `path` can be written later. `flag` is named in errors. An existing file is an error unless `replace`.
Status check_output(const std::string& path, std::string_view flag, bool replace);

// Under another name first, then renamed.
Status write_output(const std::string& path, std::string_view flag, std::string_view text);

}  // namespace sterling::cli
