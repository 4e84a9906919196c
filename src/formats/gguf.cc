#include "formats/gguf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <exception>
#include <limits>
#include <numeric>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "formats/gguf_tensor_types.h"
#include "formats/message.h"

namespace sterling::formats {

namespace {

static_assert(std::endian::native == std::endian::little, "foreign bytes are read as they lie");

// Far above any real model; a hostile count must not turn into gigabytes before the bytes run out.
constexpr std::uint64_t kMaxPairs = 1 << 16;
constexpr std::uint64_t kMaxArrayElements = 1 << 25;  // of all arrays together
constexpr std::uint64_t kMaxTensors = 1 << 21;
constexpr std::uint64_t kMaxKeyBytes = 65535;
constexpr std::uint32_t kMaxRank = 4;
constexpr std::uint64_t kMaxAlignment = 1 << 24;
constexpr std::uint64_t kDefaultAlignment = 32;

enum class ValueType : std::uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
};

// Reads forward. After a read that runs over the end every read gives zeros and ok() is false; the caller looks at it before
// it uses what it read.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) : bytes_(bytes) {}

  bool ok() const { return ok_; }
  std::size_t offset() const { return offset_; }
  std::uint64_t remaining() const { return bytes_.size() - offset_; }

  template <typename T>
  T take() {
    T value{};
    if (!reserve(sizeof(T))) return value;
    std::memcpy(&value, bytes_.data() + offset_ - sizeof(T), sizeof(T));
    return value;
  }

  std::string_view take_string() {
    const auto length = take<std::uint64_t>();
    if (!ok_ || !reserve(length)) return {};
    return {reinterpret_cast<const char*>(bytes_.data()) + offset_ - length, static_cast<std::size_t>(length)};
  }

 private:
  bool reserve(std::uint64_t count) {
    if (!ok_ || count > remaining()) {
      ok_ = false;
      return false;
    }
    offset_ += count;
    return true;
  }

  std::span<const std::byte> bytes_;
  std::size_t offset_ = 0;
  bool ok_ = true;
};

std::size_t type_size(ValueType type) {  // least bytes of one value
  switch (type) {
    case ValueType::kU8:
    case ValueType::kI8:
    case ValueType::kBool: return 1;
    case ValueType::kU16:
    case ValueType::kI16: return 2;
    case ValueType::kU32:
    case ValueType::kI32:
    case ValueType::kF32: return 4;
    default: return 8;
  }
}

class Reader {
 public:
  Reader(std::span<const std::byte> bytes, std::string_view file) : bytes_(bytes), file_(file), cursor_(bytes) {}

  Expected<GgufContents> read() {
    if (Status status = read_head(); !status) return status.error();
    if (Status status = read_metadata(); !status) return status.error();
    if (Status status = check_split(); !status) return status.error();
    if (Status status = read_tensors(); !status) return status.error();
    return std::move(contents_);
  }

 private:
  template <typename... Args>
  Error corrupt(fmt::format_string<Args...> format, Args&&... args) const {
    return problem(ErrorCode::kCorrupt, fmt::format(format, std::forward<Args>(args)...));
  }
  Error problem(ErrorCode code, const std::string& text) const {
    return make_error(code, fmt::format("{}: {}", file_, text), std::string(file_));
  }
  Error truncated(std::string_view what) const {
    return corrupt("ends inside {} (offset {} of {} bytes; is the file truncated?)", what, cursor_.offset(),
                   bytes_.size());
  }

  Status read_head();
  Status read_metadata();
  Status check_split() const;
  Status read_tensors();
  Expected<TensorView> read_tensor(std::uint64_t index, std::uint64_t* offset);
  Status place_tensors(std::span<const std::uint64_t> offsets, std::uint64_t alignment);
  Expected<std::uint64_t> alignment() const;
  Expected<GgufValue> read_value(std::string_view key, ValueType type);
  Expected<GgufValue> read_array(std::string_view key);
  std::optional<std::int64_t> take_integer(ValueType type);

  std::span<const std::byte> bytes_;
  std::string_view file_;
  Cursor cursor_;
  std::uint64_t tensor_count_ = 0;
  std::uint64_t pair_count_ = 0;
  std::uint64_t array_elements_ = 0;
  GgufContents contents_;
};

Status Reader::read_head() {
  if (bytes_.size() < 4 || std::memcmp(bytes_.data(), "GGUF", 4) != 0) {
    return corrupt("is not a GGUF file: it does not begin with the letters GGUF");
  }
  cursor_.take<std::uint32_t>();
  contents_.version = cursor_.take<std::uint32_t>();
  if (!cursor_.ok()) return truncated("the header");
  if (contents_.version != 0 && (contents_.version & 0xffffu) == 0) {
    return problem(ErrorCode::kUnsupported, "is a big-endian GGUF file; accepted: little endian");
  }
  if (contents_.version != 2 && contents_.version != 3) {
    return problem(ErrorCode::kUnsupported, fmt::format("is GGUF version {}; accepted: 2, 3", contents_.version));
  }
  tensor_count_ = cursor_.take<std::uint64_t>();
  pair_count_ = cursor_.take<std::uint64_t>();
  if (!cursor_.ok()) return truncated("the header");
  if (tensor_count_ > kMaxTensors) return corrupt("announces {} tensors, the limit is {}", tensor_count_, kMaxTensors);
  if (pair_count_ > kMaxPairs) return corrupt("announces {} metadata keys, the limit is {}", pair_count_, kMaxPairs);
  return {};
}

Status Reader::read_metadata() {
  std::vector<GgufMetadata::Pair> pairs;
  for (std::uint64_t i = 0; i < pair_count_; ++i) {
    const std::string_view key = cursor_.take_string();
    if (!cursor_.ok()) return truncated(fmt::format("metadata key {} of {}", i + 1, pair_count_));
    if (key.empty() || key.size() > kMaxKeyBytes || !is_valid_utf8(key)) {
      return corrupt("metadata key {} of {} is not a name: {}", i + 1, pair_count_, quote(key));
    }
    const auto type = cursor_.take<std::uint32_t>();
    if (!cursor_.ok()) return truncated("the type of " + quote(key));
    Expected<GgufValue> value = read_value(key, static_cast<ValueType>(type));
    if (!value) return value.error();
    pairs.emplace_back(key, std::move(*value));
  }
  std::sort(pairs.begin(), pairs.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  const auto twice =
      std::adjacent_find(pairs.begin(), pairs.end(), [](const auto& a, const auto& b) { return a.first == b.first; });
  if (twice != pairs.end()) return corrupt("metadata key {} appears twice", quote(twice->first));
  contents_.metadata = GgufMetadata(std::move(pairs));
  return {};
}

// Of the integer types and bool; empty for the others and for a bool that is neither 0 nor 1.
std::optional<std::int64_t> Reader::take_integer(ValueType type) {
  switch (type) {
    case ValueType::kU8: return cursor_.take<std::uint8_t>();
    case ValueType::kI8: return cursor_.take<std::int8_t>();
    case ValueType::kU16: return cursor_.take<std::uint16_t>();
    case ValueType::kI16: return cursor_.take<std::int16_t>();
    case ValueType::kU32: return cursor_.take<std::uint32_t>();
    case ValueType::kI32: return cursor_.take<std::int32_t>();
    case ValueType::kI64: return cursor_.take<std::int64_t>();
    case ValueType::kBool: {
      const auto value = cursor_.take<std::uint8_t>();
      if (value > 1) return std::nullopt;
      return value;
    }
    default: return std::nullopt;
  }
}

Expected<GgufValue> Reader::read_value(std::string_view key, ValueType type) {
  GgufValue value;
  switch (type) {
    case ValueType::kF32: value = static_cast<double>(cursor_.take<float>()); break;
    case ValueType::kF64: value = cursor_.take<double>(); break;
    case ValueType::kString: value = cursor_.take_string(); break;
    case ValueType::kArray: return read_array(key);
    case ValueType::kU64: {
      const auto number = cursor_.take<std::uint64_t>();
      if (number <= std::numeric_limits<std::int64_t>::max())
        value = static_cast<std::int64_t>(number);
      else
        value = number;
      break;
    }
    case ValueType::kBool: {
      const std::optional<std::int64_t> number = take_integer(type);
      if (!number) return corrupt("metadata key {}: a boolean is neither 0 nor 1", quote(key));
      value = *number == 1;
      break;
    }
    default: {
      const std::optional<std::int64_t> number = take_integer(type);
      if (!number)
        return corrupt("metadata key {} has the unknown type {}", quote(key), static_cast<std::uint32_t>(type));
      value = *number;
    }
  }
  if (!cursor_.ok()) return truncated("the value of " + quote(key));
  return value;
}

Expected<GgufValue> Reader::read_array(std::string_view key) {
  const auto type_id = cursor_.take<std::uint32_t>();
  const auto count = cursor_.take<std::uint64_t>();
  if (!cursor_.ok()) return truncated("the value of " + quote(key));
  const auto type = static_cast<ValueType>(type_id);
  if (type_id > static_cast<std::uint32_t>(ValueType::kF64)) {
    return corrupt("metadata key {} is an array of the unknown type {}", quote(key), type_id);
  }
  if (type == ValueType::kArray) {
    return problem(ErrorCode::kUnsupported, fmt::format("metadata key {} is an array of arrays", quote(key)));
  }
  if (count > cursor_.remaining() / type_size(type)) {
    return corrupt("metadata key {} announces {} elements, more than the file can hold (is it truncated?)", quote(key),
                   count);
  }
  array_elements_ += count;
  if (array_elements_ > kMaxArrayElements) {
    return corrupt("metadata arrays hold more than {} elements, up to key {}", kMaxArrayElements, quote(key));
  }

  const auto size = static_cast<std::size_t>(count);
  if (type == ValueType::kString) {
    GgufStrings strings(size);
    for (std::string_view& element : strings) element = cursor_.take_string();
    if (!cursor_.ok()) return truncated("the strings of " + quote(key));
    return GgufValue(std::move(strings));
  }
  if (type == ValueType::kF32 || type == ValueType::kF64) {
    GgufNumbers numbers(size);
    for (double& element : numbers) {
      element = type == ValueType::kF32 ? static_cast<double>(cursor_.take<float>()) : cursor_.take<double>();
    }
    return GgufValue(std::move(numbers));
  }
  GgufIntegers integers(size);
  for (std::int64_t& element : integers) {
    // An unsigned number beyond 2^63 has no use in an array of a model; take it as a fault of the file.
    const std::int64_t number =
        type == ValueType::kU64 ? cursor_.take<std::int64_t>() : take_integer(type).value_or(-1);
    if (number < 0 && (type == ValueType::kU64 || type == ValueType::kBool)) {
      return corrupt("metadata key {}: an element is out of range", quote(key));
    }
    element = number;
  }
  return GgufValue(std::move(integers));
}

Status Reader::check_split() const {
  const std::int64_t* count = contents_.metadata.get<std::int64_t>("split.count");
  if (count == nullptr || *count <= 1) return {};
  const std::int64_t* number = contents_.metadata.get<std::int64_t>("split.no");
  return problem(ErrorCode::kUnsupported,
                 fmt::format("is part {} of {} of a split GGUF; join the parts first (llama-gguf-split --merge)",
                             number == nullptr ? std::string("?") : std::to_string(*number + 1), *count));
}

Expected<std::uint64_t> Reader::alignment() const {
  const GgufValue* value = contents_.metadata.find("general.alignment");
  if (value == nullptr) return kDefaultAlignment;
  const std::int64_t* number = std::get_if<std::int64_t>(value);
  if (number == nullptr || *number < 1 || static_cast<std::uint64_t>(*number) > kMaxAlignment ||
      !std::has_single_bit(static_cast<std::uint64_t>(*number))) {
    return corrupt("general.alignment {} is not a power of two from 1 to {}",
                   number == nullptr ? std::string("(no integer)") : std::to_string(*number), kMaxAlignment);
  }
  return static_cast<std::uint64_t>(*number);
}

Expected<TensorView> Reader::read_tensor(std::uint64_t index, std::uint64_t* offset) {
  const auto ends = [&] { return truncated(fmt::format("the entry of tensor {} of {}", index + 1, tensor_count_)); };
  const std::string_view name = cursor_.take_string();
  const auto rank = cursor_.take<std::uint32_t>();
  if (!cursor_.ok()) return ends();
  if (name.empty() || name.size() > kMaxKeyBytes || !is_valid_utf8(name)) {
    return corrupt("tensor {} of {} has no proper name: {}", index + 1, tensor_count_, quote(name));
  }
  if (rank > kMaxRank) return corrupt("tensor {} has {} extents, at most {} are allowed", quote(name), rank, kMaxRank);

  TensorView tensor;
  tensor.name = name;
  tensor.file = file_;
  for (std::uint32_t i = 0; i < rank; ++i) {
    const auto extent = cursor_.take<std::uint64_t>();
    if (extent > std::numeric_limits<std::int64_t>::max()) {
      return corrupt("tensor {} has the absurd extent {}", quote(name), extent);
    }
    tensor.shape.insert(tensor.shape.begin(), static_cast<std::int64_t>(extent));
  }
  const auto type_id = cursor_.take<std::uint32_t>();
  *offset = cursor_.take<std::uint64_t>();
  if (!cursor_.ok()) return ends();

  const GgufTensorType* type = find_gguf_tensor_type(type_id);
  if (type == nullptr || !type->dtype) {
    return problem(ErrorCode::kUnsupported,
                   fmt::format("tensor {} has type {}; accepted: {}", quote(name),
                               type == nullptr ? fmt::format("number {}", type_id) : std::string(type->name),
                               accepted_gguf_tensor_types()));
  }
  tensor.dtype = *type->dtype;
  return tensor;
}

Status Reader::read_tensors() {
  const Expected<std::uint64_t> align = alignment();
  if (!align) return align.error();
  std::vector<std::uint64_t> offsets;
  for (std::uint64_t i = 0; i < tensor_count_; ++i) {
    std::uint64_t offset = 0;
    Expected<TensorView> tensor = read_tensor(i, &offset);
    if (!tensor) return tensor.error();
    contents_.tensors.push_back(std::move(*tensor));
    offsets.push_back(offset);
  }
  return place_tensors(offsets, *align);
}

// Gives each tensor its bytes: offsets count from the first aligned byte after the entries, are aligned, and do not overlap.
Status Reader::place_tensors(std::span<const std::uint64_t> offsets, std::uint64_t alignment) {
  const auto padded = [&](std::uint64_t n) { return (n + alignment - 1) / alignment * alignment; };
  const std::uint64_t data_begin = std::min<std::uint64_t>(padded(cursor_.offset()), bytes_.size());
  const std::span<const std::byte> data = bytes_.subspan(data_begin);
  std::vector<TensorView>& tensors = contents_.tensors;

  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return tensors[a].name < tensors[b].name; });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const std::string& name = tensors[order[i]].name;
    if (name == tensors[order[i - 1]].name) return corrupt("tensor {} appears twice", quote(name));
  }

  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return offsets[a] < offsets[b]; });
  std::uint64_t covered = 0;
  const TensorView* previous = nullptr;
  for (const std::size_t i : order) {
    TensorView& tensor = tensors[i];
    const std::optional<std::uint64_t> elements = shape_elements(tensor.shape);
    const std::int64_t columns = tensor.shape.empty() ? 1 : tensor.shape.back();
    const std::uint32_t block = dtype_layout(tensor.dtype).block_elements;
    if (elements && columns % block != 0) {
      return corrupt("tensor {}: rows of {} elements are not whole blocks of {} ({} elements)", quote(tensor.name),
                     columns, dtype_name(tensor.dtype), block);
    }
    const std::optional<std::uint64_t> size = elements ? dtype_bytes(tensor.dtype, *elements) : std::nullopt;
    if (!size) return corrupt("tensor {}: shape {} is too large", quote(tensor.name), shape_text(tensor.shape));
    if (offsets[i] % alignment != 0) {
      return corrupt("tensor {}: offset {} is not a multiple of the alignment {}", quote(tensor.name), offsets[i],
                     alignment);
    }
    if (offsets[i] > data.size() || *size > data.size() - offsets[i]) {
      return corrupt("tensor {}: {} bytes at offset {} lie beyond the file's {} bytes of data (is it truncated?)",
                     quote(tensor.name), *size, offsets[i], data.size());
    }
    if (offsets[i] < covered) {
      return corrupt("tensor {}: offset {} overlaps tensor {}", quote(tensor.name), offsets[i], quote(previous->name));
    }
    tensor.data = data.subspan(offsets[i], *size);
    covered = offsets[i] + *size;
    previous = &tensor;
  }
  return {};
}

}  // namespace

const GgufValue* GgufMetadata::find(std::string_view key) const {
  const auto at = std::lower_bound(pairs_.begin(), pairs_.end(), key,
                                   [](const Pair& pair, std::string_view wanted) { return pair.first < wanted; });
  return at != pairs_.end() && at->first == key ? &at->second : nullptr;
}

Expected<GgufContents> parse_gguf(std::span<const std::byte> bytes, std::string_view file) {
  try {
    return Reader(bytes, file).read();
  } catch (const std::exception& problem) {  // out of memory
    return make_error(ErrorCode::kResourceExhausted, fmt::format("{}: {}", file, problem.what()), std::string(file));
  }
}

}  // namespace sterling::formats
