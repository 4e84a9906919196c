// Configuration files: either one JSON object of settings, or lines `key = value` with # comments. The first character that is
// no blank decides: '{' is JSON.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace sterling::config {

struct FileEntry {
  std::string key;    // as written
  std::string value;  // as a flag's value would be written
  std::string where;  // "FILE:LINE" or "FILE:KEY" (JSON)
};

// `name` is used in messages. kInvalidArgument: a line or value that is none; a key written twice in a line file (in JSON the
// last one counts, as the JSON library has it). Which keys exist is the resolver's business. Quotes around a value in a line
// file are taken off ("value" or 'value', no escapes); JSON null leaves a setting unset.
Expected<std::vector<FileEntry>> parse_config_file(std::string_view text, const std::string& name);

}  // namespace sterling::config
