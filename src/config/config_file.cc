#include "config/config_file.h"

#include <exception>
#include <map>
#include <utility>

#include <boost/json.hpp>

namespace sterling::config {
namespace {

constexpr std::string_view kBlanks = " \t\r";

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

Error bad_file(const std::string& where, const std::string& what) {
  return make_error(ErrorCode::kInvalidArgument, where + ": " + what, where);
}

Expected<std::vector<FileEntry>> parse_json(std::string_view text, const std::string& name) {
  boost::json::error_code failure;
  const boost::json::value document = boost::json::parse({text.data(), text.size()}, failure);
  if (failure) return bad_file(name, "is no JSON: " + failure.message());
  if (!document.is_object()) return bad_file(name, "expected one JSON object of settings");
  std::vector<FileEntry> entries;
  for (const auto& [key, value] : document.get_object()) {
    FileEntry entry{std::string(key), {}, name + ":" + std::string(key)};
    if (value.is_null()) continue;
    if (value.is_structured()) {
      return bad_file(entry.where, "is a JSON " + std::string(value.is_array() ? "array" : "object") +
                                       "; accepted: a string, a number, true or false");
    }
    entry.value = value.is_string() ? std::string(value.get_string()) : boost::json::serialize(value);
    entries.push_back(std::move(entry));
  }
  return entries;
}

Expected<std::vector<FileEntry>> parse_lines(std::string_view text, const std::string& name) {
  std::vector<FileEntry> entries;
  std::map<std::string, std::string, std::less<>> seen;
  std::size_t line_number = 0;
  while (!text.empty()) {
    const std::size_t length = text.find('\n');
    const std::string_view line = trimmed(text.substr(0, length));
    text.remove_prefix(length == std::string_view::npos ? text.size() : length + 1);
    ++line_number;
    if (line.empty() || line.front() == '#') continue;
    const std::string where = name + ":" + std::to_string(line_number);
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      return bad_file(where, "'" + std::string(line.substr(0, 80)) + "' is no setting; expected `key = value`");
    }
    FileEntry entry{std::string(trimmed(line.substr(0, equals))), {}, where};
    std::string_view value = trimmed(line.substr(equals + 1));
    if (!value.empty() && (value.front() == '"' || value.front() == '\'')) {
      if (value.size() < 2 || value.back() != value.front()) return bad_file(where, "a quote is opened and not closed");
      value = value.substr(1, value.size() - 2);
    }
    entry.value = value;
    if (const auto [at, fresh] = seen.emplace(entry.key, where); !fresh) {
      return bad_file(where, "'" + entry.key + "' is set already at " + at->second);
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace

Expected<std::vector<FileEntry>> parse_config_file(std::string_view text, const std::string& name) {
  if (text.find('\0') != std::string_view::npos)
    return bad_file(name, "holds a NUL byte: this is no configuration file");
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  try {
    if (first != std::string_view::npos && text[first] == '{') return parse_json(text, name);
    return parse_lines(text, name);
  } catch (const std::exception& failure) {  // the JSON library may run out of memory
    return make_error(ErrorCode::kResourceExhausted, name + ": cannot be read: " + failure.what(), name);
  }
}

}  // namespace sterling::config
