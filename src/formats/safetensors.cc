#include "formats/safetensors.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "formats/json_drive.h"
#include "formats/message.h"

namespace sterling::formats {

namespace {

namespace json = boost::json;

// More than any layout needs; keeps a hostile header from growing into gigabytes of extents.
constexpr std::size_t kMaxRank = 16;

constexpr std::array kDTypes = {DType::kBF16,   DType::kF32,    DType::kF16,    DType::kF64, DType::kF8E4M3,
                                DType::kF8E5M2, DType::kF8E8M0, DType::kF4E2M1, DType::kU8,  DType::kI8,
                                DType::kI16,    DType::kU16,    DType::kI32,    DType::kU32, DType::kI64,
                                DType::kU64,    DType::kBool};

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const DType dtype : kDTypes) {
    if (dtype_name(dtype) == name) return dtype;
  }
  return std::nullopt;
}

std::string accepted_dtypes() {
  std::string list;
  for (const DType dtype : kDTypes) {
    if (!list.empty()) list += ", ";
    list += dtype_name(dtype);
  }
  return list;
}

struct Entry {
  TensorView view;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// A streaming reader of the header: a checkpoint may have 370,000 entries, so no document is built. It knows where it is by
// depth (1: names, 2: a tensor's fields or __metadata__'s, 3: an array of numbers) and refuses whatever does not belong there.
struct HeaderHandler {
  static constexpr std::size_t max_object_size = std::numeric_limits<std::size_t>::max();
  static constexpr std::size_t max_array_size = std::numeric_limits<std::size_t>::max();
  static constexpr std::size_t max_key_size = std::numeric_limits<std::size_t>::max();
  static constexpr std::size_t max_string_size = std::numeric_limits<std::size_t>::max();

  enum class Field { kNone, kDType, kShape, kOffsets };

  explicit HeaderHandler(std::string_view file_name) : file(file_name) {}

  bool on_document_begin(json::error_code&) { return true; }
  bool on_document_end(json::error_code&) { return true; }
  bool on_comment_part(json::string_view, json::error_code&) { return true; }
  bool on_comment(json::string_view, json::error_code&) { return true; }

  bool on_object_begin(json::error_code& ec) {
    if (depth >= 2) return unexpected("an object", ec);
    ++depth;
    if (depth == 2 && !in_metadata) {
      entries.emplace_back().view.name = name;
      has_dtype = has_shape = has_offsets = false;
    }
    return true;
  }

  bool on_object_end(std::size_t, json::error_code& ec) {
    --depth;
    if (depth == 0) return true;
    if (!in_metadata) {
      if (!has_dtype) return fail("dtype is missing", ec);
      if (!has_shape) return fail("shape is missing", ec);
      if (!has_offsets) return fail("data_offsets is missing", ec);
    }
    in_metadata = false;
    name.clear();
    return true;
  }

  bool on_array_begin(json::error_code& ec) {
    if (depth != 2 || in_metadata || (field != Field::kShape && field != Field::kOffsets))
      return unexpected("an array", ec);
    depth = 3;
    offsets_found = 0;
    return true;
  }

  bool on_array_end(std::size_t, json::error_code& ec) {
    depth = 2;
    if (field == Field::kOffsets && offsets_found != 2) {
      return fail(fmt::format("data_offsets has {} numbers, expected begin and end", offsets_found), ec);
    }
    return true;
  }

  bool on_key_part(json::string_view s, std::size_t, json::error_code&) {
    text.append(s.data(), s.size());
    return true;
  }

  bool on_key(json::string_view s, std::size_t, json::error_code& ec) {
    text.append(s.data(), s.size());
    if (depth == 1) {
      name.swap(text);
      text.clear();
      in_metadata = name == "__metadata__";
      if (in_metadata && metadata_seen) return fail("appears twice", ec);
      metadata_seen = metadata_seen || in_metadata;
      return true;
    }
    if (in_metadata) {
      contents.metadata.emplace_back(text, std::string());
    } else if (text == "dtype") {
      if (!start_field(Field::kDType, has_dtype, ec)) return false;
    } else if (text == "shape") {
      if (!start_field(Field::kShape, has_shape, ec)) return false;
    } else if (text == "data_offsets") {
      if (!start_field(Field::kOffsets, has_offsets, ec)) return false;
    } else {
      return fail(fmt::format("unknown field {}, accepted: dtype, shape, data_offsets", quote(text)), ec);
    }
    text.clear();
    return true;
  }

  bool start_field(Field which, bool& seen, json::error_code& ec) {
    field = which;
    if (seen) return fail(fmt::format("{} appears twice", text), ec);
    seen = true;
    return true;
  }

  bool on_string_part(json::string_view s, std::size_t, json::error_code&) {
    text.append(s.data(), s.size());
    return true;
  }

  bool on_string(json::string_view s, std::size_t, json::error_code& ec) {
    text.append(s.data(), s.size());
    if (depth == 2 && in_metadata) {
      contents.metadata.back().second.swap(text);
    } else if (depth == 2 && field == Field::kDType) {
      const std::optional<DType> dtype = dtype_from_name(text);
      if (!dtype) {
        return fail(fmt::format("unknown dtype {}, accepted: {}", quote(text), accepted_dtypes()), ec,
                    ErrorCode::kUnsupported);
      }
      entries.back().view.dtype = *dtype;
    } else {
      return unexpected("the string " + quote(text), ec);
    }
    text.clear();
    return true;
  }

  bool on_number_part(json::string_view, json::error_code&) { return true; }
  bool on_int64(std::int64_t value, json::string_view, json::error_code& ec) {
    if (depth != 3) return unexpected(fmt::format("the number {}", value), ec);
    Entry& entry = entries.back();
    if (field == Field::kShape) {
      if (value < 0) return fail(fmt::format("shape has the negative extent {}", value), ec);
      if (entry.view.shape.size() == kMaxRank) return fail(fmt::format("shape has more than {} extents", kMaxRank), ec);
      entry.view.shape.push_back(value);
      return true;
    }
    if (value < 0) return fail(fmt::format("data_offsets has the negative number {}", value), ec);
    if (offsets_found == 0) entry.begin = static_cast<std::uint64_t>(value);
    if (offsets_found == 1) entry.end = static_cast<std::uint64_t>(value);
    ++offsets_found;
    return true;
  }
  bool on_uint64(std::uint64_t value, json::string_view, json::error_code& ec) {  // beyond 2^63 - 1
    if (depth != 3) return unexpected(fmt::format("the number {}", value), ec);
    return fail(fmt::format("{} has the absurd number {}", field_name(), value), ec);
  }
  bool on_double(double value, json::string_view, json::error_code& ec) {
    if (depth != 3) return unexpected(fmt::format("the number {}", value), ec);
    return fail(fmt::format("{} has the number {}, expected integers", field_name(), value), ec);
  }
  bool on_bool(bool value, json::error_code& ec) { return unexpected(value ? "true" : "false", ec); }
  bool on_null(json::error_code& ec) { return unexpected("null", ec); }

  std::string_view field_name() const {
    switch (field) {
      case Field::kDType: return "dtype";
      case Field::kShape: return "shape";
      case Field::kOffsets: return "data_offsets";
      case Field::kNone: break;
    }
    return "the field";
  }

  bool unexpected(std::string_view found, json::error_code& ec) {
    if (depth == 0) return fail(fmt::format("expected a JSON object of tensors, found {}", found), ec);
    if (depth == 1) return fail(fmt::format("expected an object, found {}", found), ec);
    if (in_metadata) {
      return fail(fmt::format("{}: expected a string, found {}", quote(contents.metadata.back().first), found), ec);
    }
    if (depth == 3) return fail(fmt::format("{}: expected integers, found {}", field_name(), found), ec);
    const std::string_view expected = field == Field::kDType ? "a string" : "an array of integers";
    return fail(fmt::format("{}: expected {}, found {}", field_name(), expected, found), ec);
  }

  bool fail(std::string_view problem, json::error_code& ec, ErrorCode code = ErrorCode::kCorrupt) {
    if (depth == 0) {
      error = make_error(code, fmt::format("{}: header: {}", file, problem), std::string(file));
    } else {
      const std::string_view kind = in_metadata ? "" : "tensor ";
      error = make_error(code, fmt::format("{}: {}{}: {}", file, kind, in_metadata ? name : quote(name), problem),
                         fmt::format("{}:{}", file, name));
    }
    ec = json::error::exception;
    return false;
  }

  std::string_view file;
  std::optional<Error> error;
  SafetensorsContents contents;
  std::vector<Entry> entries;
  std::string name;  // of the tensor being read
  std::string text;  // a key or a string of which parts have come
  int depth = 0;
  Field field = Field::kNone;
  std::size_t offsets_found = 0;
  bool in_metadata = false, metadata_seen = false;
  bool has_dtype = false, has_shape = false, has_offsets = false;
};

Error tensor_error(std::string_view file, const TensorView& tensor, std::string_view problem) {
  return make_error(ErrorCode::kCorrupt, fmt::format("{}: tensor {}: {}", file, quote(tensor.name), problem),
                    fmt::format("{}:{}", file, tensor.name));
}

// Every byte of the data belongs to exactly one tensor, and each tensor has the bytes that its shape and dtype need.
Status check_layout(const std::vector<Entry>& entries, std::uint64_t data_size, std::string_view file) {
  std::vector<std::size_t> order(entries.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const Entry& x = entries[a];
    const Entry& y = entries[b];
    return x.begin != y.begin ? x.begin < y.begin : x.end < y.end;
  });
  std::uint64_t covered = 0;
  const Entry* previous = nullptr;
  for (const std::size_t i : order) {
    const Entry& entry = entries[i];
    const TensorView& tensor = entry.view;
    if (entry.end < entry.begin) {
      return tensor_error(file, tensor, fmt::format("data_offsets are reversed: [{}, {}]", entry.begin, entry.end));
    }
    if (entry.end > data_size) {
      return tensor_error(file, tensor,
                          fmt::format("data_offsets [{}, {}] lie beyond the file's {} bytes of data (is it truncated?)",
                                      entry.begin, entry.end, data_size));
    }
    if (entry.begin < covered) {
      return tensor_error(
          file, tensor,
          fmt::format("data_offsets [{}, {}] overlap tensor {}", entry.begin, entry.end, quote(previous->view.name)));
    }
    if (entry.begin > covered) {
      return tensor_error(file, tensor,
                          fmt::format("{} unused bytes before its data_offsets [{}, {}]", entry.begin - covered,
                                      entry.begin, entry.end));
    }
    const std::optional<std::uint64_t> elements = shape_elements(tensor.shape);
    const std::optional<std::uint64_t> bytes = elements ? dtype_bytes(tensor.dtype, *elements) : std::nullopt;
    if (!elements || (!bytes && dtype_layout(tensor.dtype).block_elements == 1)) {
      return tensor_error(file, tensor, fmt::format("shape {} is too large", shape_text(tensor.shape)));
    }
    if (!bytes) {
      return tensor_error(file, tensor,
                          fmt::format("shape {} of {} is not a whole number of bytes", shape_text(tensor.shape),
                                      dtype_name(tensor.dtype)));
    }
    if (*bytes != entry.end - entry.begin) {
      return tensor_error(file, tensor,
                          fmt::format("shape {} of {} needs {} bytes, data_offsets give {}", shape_text(tensor.shape),
                                      dtype_name(tensor.dtype), *bytes, entry.end - entry.begin));
    }
    covered = entry.end;
    previous = &entry;
  }
  if (covered != data_size) {
    return make_error(ErrorCode::kCorrupt,
                      fmt::format("{}: {} bytes follow the last tensor", file, data_size - covered), std::string(file));
  }
  return {};
}

Expected<std::string_view> header_text(std::span<const std::byte> bytes, std::string_view file) {
  const auto corrupt = [&](std::string problem) {
    return make_error(ErrorCode::kCorrupt, fmt::format("{}: {}", file, problem), std::string(file));
  };
  if (bytes.size() < 8) {
    return corrupt(
        fmt::format("has {} bytes, a safetensors file has at least the 8 of its header length", bytes.size()));
  }
  std::uint64_t length = 0;
  for (int i = 7; i >= 0; --i)
    length = length << 8 | std::to_integer<std::uint64_t>(bytes[static_cast<std::size_t>(i)]);
  if (length > kMaxSafetensorsHeader) {
    return corrupt(fmt::format("the header length is {}, the limit is {} (is this a safetensors file?)", length,
                               kMaxSafetensorsHeader));
  }
  if (length > bytes.size() - 8) {
    return corrupt(fmt::format("the header length is {}, but only {} bytes follow it (is the file truncated?)", length,
                               bytes.size() - 8));
  }
  return std::string_view(reinterpret_cast<const char*>(bytes.data()) + 8, length);
}

Expected<SafetensorsContents> parse(std::span<const std::byte> bytes, std::string_view file) {
  const Expected<std::string_view> header = header_text(bytes, file);
  if (!header) return header.error();

  JsonLimits limits;
  limits.max_bytes = kMaxSafetensorsHeader;
  limits.max_depth = 4;  // the handler refuses a fourth level with a better message
  json::parse_options options;
  options.max_depth = limits.max_depth;
  json::basic_parser<HeaderHandler> parser(options, file);
  if (Status status = drive_json(parser, *header, file, limits); !status) return status.error();

  std::vector<Entry>& entries = parser.handler().entries;
  const std::span<const std::byte> data = bytes.subspan(8 + header->size());
  // By name first: of two entries of one name the layout would only say that they overlap.
  const auto by_name = [](const Entry& a, const Entry& b) { return a.view.name < b.view.name; };
  if (!std::is_sorted(entries.begin(), entries.end(), by_name)) std::sort(entries.begin(), entries.end(), by_name);
  const auto twice = std::adjacent_find(entries.begin(), entries.end(),
                                        [](const Entry& a, const Entry& b) { return a.view.name == b.view.name; });
  if (twice != entries.end()) return tensor_error(file, twice->view, "appears twice in the header");

  if (Status status = check_layout(entries, data.size(), file); !status) return status.error();

  SafetensorsContents contents = std::move(parser.handler().contents);
  contents.tensors.reserve(entries.size());
  for (Entry& entry : entries) {
    entry.view.data = data.subspan(entry.begin, entry.end - entry.begin);
    entry.view.file = file;
    contents.tensors.push_back(std::move(entry.view));
  }
  return contents;
}

}  // namespace

Expected<SafetensorsContents> parse_safetensors(std::span<const std::byte> bytes, std::string_view file) {
  try {
    return parse(bytes, file);
  } catch (const std::exception& problem) {  // out of memory
    return make_error(ErrorCode::kResourceExhausted, fmt::format("{}: {}", file, problem.what()), std::string(file));
  }
}

}  // namespace sterling::formats
