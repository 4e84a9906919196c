#include "formats/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "formats/json_drive.h"
#include "formats/message.h"
#include "platform/mapped_file.h"

namespace sterling::formats {

namespace {

namespace json = boost::json;

// Builds the document and checks what Boost.JSON lets pass: keys that appear twice (the last would win in silence) and numbers
// beyond a double. It also reads decimals again, because this version of Boost.JSON does not round all of them correctly.
struct DomHandler {
  static constexpr std::size_t max_object_size = json::object::max_size();
  static constexpr std::size_t max_array_size = json::array::max_size();
  static constexpr std::size_t max_key_size = json::string::max_size();
  static constexpr std::size_t max_string_size = json::string::max_size();

  struct Frame {
    bool is_object = false;
    std::size_t index = 0;          // of the array element being read
    std::vector<std::string> keys;  // of the object so far; the last one is being read
  };

  explicit DomHandler(std::string_view file_name) : file(file_name) { stack.reset(); }

  bool on_document_begin(json::error_code&) { return true; }
  bool on_document_end(json::error_code&) { return true; }

  bool on_object_begin(json::error_code&) {
    frames.emplace_back().is_object = true;
    return true;
  }
  bool on_object_end(std::size_t n, json::error_code& ec) {
    std::vector<std::string> keys = std::move(frames.back().keys);
    frames.pop_back();
    std::sort(keys.begin(), keys.end());
    const auto twice = std::adjacent_find(keys.begin(), keys.end());
    if (twice != keys.end()) return fail(fmt::format("the key {} appears twice", quote(*twice)), ec);
    stack.push_object(n);
    return value_done();
  }
  bool on_array_begin(json::error_code&) {
    frames.emplace_back();
    return true;
  }
  bool on_array_end(std::size_t n, json::error_code&) {
    frames.pop_back();
    stack.push_array(n);
    return value_done();
  }

  bool on_key_part(json::string_view s, std::size_t, json::error_code&) {
    key.append(s.data(), s.size());
    stack.push_chars(s);
    return true;
  }
  bool on_key(json::string_view s, std::size_t, json::error_code&) {
    key.append(s.data(), s.size());
    frames.back().keys.push_back(std::exchange(key, {}));
    stack.push_key(s);
    return true;
  }
  bool on_string_part(json::string_view s, std::size_t, json::error_code&) {
    stack.push_chars(s);
    return true;
  }
  bool on_string(json::string_view s, std::size_t, json::error_code&) {
    stack.push_string(s);
    return value_done();
  }

  bool on_number_part(json::string_view s, json::error_code&) {
    number.append(s.data(), s.size());
    return true;
  }
  bool on_int64(std::int64_t i, json::string_view, json::error_code&) {
    number.clear();
    stack.push_int64(i);
    return value_done();
  }
  bool on_uint64(std::uint64_t u, json::string_view, json::error_code&) {
    number.clear();
    stack.push_uint64(u);
    return value_done();
  }
  bool on_double(double approximate, json::string_view s, json::error_code& ec) {
    number.append(s.data(), s.size());
    double value = 0.0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
    // Out of range means too large or too small; the latter is zero.
    if (error == std::errc::result_out_of_range) value = std::fabs(approximate) < 1.0 ? 0.0 : HUGE_VAL;
    if (!std::isfinite(value)) return fail(fmt::format("the number {} is out of range", quote(number)), ec);
    number.clear();
    stack.push_double(value);
    return value_done();
  }
  bool on_bool(bool b, json::error_code&) {
    stack.push_bool(b);
    return value_done();
  }
  bool on_null(json::error_code&) {
    stack.push_null();
    return value_done();
  }
  bool on_comment_part(json::string_view, json::error_code&) { return true; }
  bool on_comment(json::string_view, json::error_code&) { return true; }

  bool value_done() {
    if (!frames.empty()) ++frames.back().index;
    return true;
  }

  bool fail(std::string_view problem, json::error_code& ec) {
    const std::string path = current_path();
    error =
        make_error(ErrorCode::kCorrupt,
                   path.empty() ? fmt::format("{}: {}", file, problem) : fmt::format("{}: {}: {}", file, path, problem),
                   path.empty() ? file : file + ":" + path);
    ec = json::error::exception;
    return false;
  }

  std::string current_path() const {
    std::string path;
    for (const Frame& frame : frames) {
      if (!frame.is_object) {
        path += fmt::format("[{}]", frame.index);
      } else if (!frame.keys.empty()) {
        if (!path.empty()) path += '.';
        const std::string& name = frame.keys.back();
        const bool plain =
            name.size() <= 80 && std::all_of(name.begin(), name.end(), [](char c) {
              return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
            });
        path += plain ? name : quote(name);
      }
    }
    return path;
  }

  std::string file;
  std::optional<Error> error;
  json::value_stack stack;
  std::vector<Frame> frames;
  std::string key;
  std::string number;
};

}  // namespace

Error json_syntax_error(std::string_view text, std::size_t offset, std::string_view file, const JsonLimits& limits,
                        const json::error_code& code) {
  std::string problem = code.message();
  if (code == json::error::too_deep) {
    problem = fmt::format("nested deeper than {} levels", limits.max_depth);
  } else if (code == json::error::incomplete) {
    problem = text.empty() ? "the JSON is empty" : "the JSON ends in the middle";
  } else if (code == json::error::extra_data) {
    problem = "something follows the end of the JSON";
  } else if (code == json::error::syntax) {
    // Boost.JSON reports bytes that are not UTF-8 as a syntax error.
    problem = is_valid_utf8(text) ? "not valid JSON (" + problem + ")" : "not valid UTF-8";
  }
  const std::string place = line_column(text, offset);
  return make_error(ErrorCode::kCorrupt, fmt::format("{}:{}: {}", file, place, problem),
                    fmt::format("{}:{}", file, place));
}

Expected<json::value> parse_json(std::string_view text, std::string_view file, const JsonLimits& limits) {
  try {
    json::parse_options options;
    options.max_depth = limits.max_depth;
    json::basic_parser<DomHandler> parser(options, file);
    if (Status status = drive_json(parser, text, file, limits); !status) return status.error();
    return parser.handler().stack.release();
  } catch (const std::exception& problem) {  // out of memory
    return make_error(ErrorCode::kResourceExhausted, fmt::format("{}: {}", file, problem.what()), std::string(file));
  }
}

Expected<json::object> parse_json_object(std::string_view text, std::string_view file, const JsonLimits& limits) {
  Expected<json::value> value = parse_json(text, file, limits);
  if (!value) return value.error();
  if (!value->is_object()) {
    return make_error(ErrorCode::kCorrupt, fmt::format("{}: expected a JSON object, found {}", file, describe(*value)),
                      std::string(file));
  }
  return std::move(value->get_object());
}

Expected<json::object> read_json_object(const std::filesystem::path& path, const JsonLimits& limits) {
  Expected<platform::MappedFile> file = platform::MappedFile::open(path);
  if (!file) return file.error();
  const auto bytes = file->data();
  return parse_json_object({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, file->path(), limits);
}

std::string describe(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null: return "null";
    case json::kind::bool_: return value.get_bool() ? "true" : "false";
    case json::kind::int64: return fmt::format("the number {}", value.get_int64());
    case json::kind::uint64: return fmt::format("the number {}", value.get_uint64());
    case json::kind::double_: return fmt::format("the number {}", value.get_double());
    case json::kind::string: return "the string " + quote({value.get_string().data(), value.get_string().size()});
    case json::kind::array: return "an array";
    case json::kind::object: return "an object";
  }
  return "nothing";
}

}  // namespace sterling::formats
