#include "formats/safetensors_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include <boost/json.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "formats/safetensors.h"

namespace sterling::formats {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTemporary = ".incomplete";
constexpr std::string_view kIndexName = "model.safetensors.index.json";

Error system_error(int number, std::string_view what, const fs::path& path) {
  const ErrorCode code = number == ENOSPC || number == EDQUOT || number == EMFILE || number == EFBIG
                             ? ErrorCode::kResourceExhausted
                         : number == EACCES || number == EPERM || number == EROFS ? ErrorCode::kPermission
                                                                                  : ErrorCode::kIo;
  return make_error(
      code, fmt::format("{}: {}: {}", path.string(), what, std::error_code(number, std::system_category()).message()),
      path.string());
}

// A file that is being written; closed with it.
class OutputFile {
 public:
  OutputFile() = default;
  OutputFile(OutputFile&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)), path_(std::move(other.path_)) {}
  OutputFile& operator=(OutputFile&& other) noexcept {
    close();
    descriptor_ = std::exchange(other.descriptor_, -1);
    path_ = std::move(other.path_);
    return *this;
  }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile() { close(); }

  // A name that is there already is refused: it is not ours.
  Status create(const fs::path& path) {
    descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (descriptor_ < 0) return system_error(errno, "can't be created", path);
    path_ = path;
    return {};
  }

  Status write_at(std::int64_t offset, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::pwrite(descriptor_, bytes.data(), bytes.size(), offset);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return system_error(errno, "can't be written", path_);
      offset += written;
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
    return {};
  }

  // To disk, and closed: close() is where some file systems report.
  Status settle() {
    if (::fsync(descriptor_) != 0) return system_error(errno, "can't be brought to disk", path_);
    if (::close(std::exchange(descriptor_, -1)) != 0) return system_error(errno, "can't be closed", path_);
    return {};
  }

 private:
  void close() {
    if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
  }

  int descriptor_ = -1;
  fs::path path_;
};

Status rename_file(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return {};
  return system_error(errno, "can't be renamed from its temporary name", to);
}

// Makes entries of a folder survive a loss of power, where the file system can.
void sync_folder(const fs::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

fs::path temporary_name(const fs::path& path) {
  fs::path name = path;
  name += kTemporary;
  return name;
}

std::string json_string(std::string_view text) {
  return boost::json::serialize(boost::json::value(text));
}

}  // namespace

struct SafetensorsWriter::State {
  struct Tensor {
    PlannedTensor plan;
    std::int64_t bytes = 0;
    std::size_t shard = 0;
    std::int64_t offset = 0;  // in the file
    std::int64_t filled = 0;
  };
  struct Shard {
    std::string name;
    std::vector<std::size_t> tensors;  // in file order
    std::int64_t data_bytes = 0;
    std::string header;  // with its length in front; let go once written
    std::int64_t header_bytes = 0;
    std::int64_t missing = 0;  // bytes not yet appended
    OutputFile file;
    enum class Stage { kPlanned, kOpen, kSettled, kNamed } stage = Stage::kPlanned;
  };

  fs::path folder;
  std::vector<Tensor> tensors;
  std::vector<Shard> shards;
  std::int64_t total = 0;  // of the tensors alone
  std::string index;       // empty with one shard
  std::vector<std::string> files;
  bool finished = false;

  Status place(std::vector<PlannedTensor> planned, std::int64_t shard_bytes);
  Status lay_out(Shard& shard);
  void write_index();
  Status open(Shard& shard);
  Status settle(Shard& shard);
  void take_back();
};

// Sizes, and which tensor goes to which shard.
Status SafetensorsWriter::State::place(std::vector<PlannedTensor> planned, std::int64_t shard_bytes) {
  std::map<std::string_view, int> names;
  for (PlannedTensor& plan : planned) {
    const auto elements = shape_elements(plan.shape);
    const auto bytes = elements ? dtype_bytes(plan.dtype, *elements) : std::nullopt;
    if (!bytes || is_block_dtype(plan.dtype) || *bytes > (std::uint64_t{1} << 60)) {
      return make_error(ErrorCode::kInvalidArgument,
                        fmt::format("{}: a tensor {} {} can't be written to a safetensors file", plan.name,
                                    dtype_name(plan.dtype), shape_text(plan.shape)),
                        plan.name);
    }
    tensors.push_back({std::move(plan), static_cast<std::int64_t>(*bytes)});
  }
  for (const Tensor& tensor : tensors) {
    if (names.emplace(tensor.plan.name, 0).second) continue;
    return make_error(ErrorCode::kInvalidArgument, fmt::format("{}: two tensors have this name", tensor.plan.name),
                      tensor.plan.name);
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (shards.empty() || (shards.back().data_bytes > 0 && tensors[i].bytes > shard_bytes - shards.back().data_bytes)) {
      shards.emplace_back();
    }
    shards.back().tensors.push_back(i);
    shards.back().data_bytes += tensors[i].bytes;
    tensors[i].shard = shards.size() - 1;
    total += tensors[i].bytes;
  }
  if (shards.empty()) shards.emplace_back();
  return {};
}

// Order, offsets and header of one shard.
Status SafetensorsWriter::State::lay_out(Shard& shard) {
  std::sort(shard.tensors.begin(), shard.tensors.end(), [&](std::size_t a, std::size_t b) {
    const auto size = [&](std::size_t i) { return dtype_layout(tensors[i].plan.dtype).block_bytes; };
    if (size(a) != size(b)) return size(a) > size(b);
    // Equal sizes: by type, then by name.
    if (tensors[a].plan.dtype != tensors[b].plan.dtype) return tensors[a].plan.dtype < tensors[b].plan.dtype;
    return tensors[a].plan.name < tensors[b].plan.name;
  });
  std::string text = R"({"__metadata__":{"format":"pt"})";
  std::int64_t offset = 0;
  for (const std::size_t i : shard.tensors) {
    Tensor& tensor = tensors[i];
    tensor.offset = offset;
    text +=
        fmt::format(",{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", json_string(tensor.plan.name),
                    dtype_name(tensor.plan.dtype), fmt::join(tensor.plan.shape, ","), offset, offset + tensor.bytes);
    offset += tensor.bytes;
  }
  text += "}";
  text.append((8 - text.size() % 8) % 8, ' ');
  if (text.size() > kMaxSafetensorsHeader) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("{}: a header of {} bytes; readers take at most {}: choose smaller shards",
                                  shard.name, text.size(), kMaxSafetensorsHeader),
                      shard.name);
  }
  std::array<char, 8> length{};
  for (std::size_t i = 0; i < length.size(); ++i) length[i] = static_cast<char>((text.size() >> (8 * i)) & 0xffu);
  shard.header.assign(length.begin(), length.end());
  shard.header += text;
  shard.header_bytes = static_cast<std::int64_t>(shard.header.size());
  shard.missing = shard.data_bytes;
  for (const std::size_t i : shard.tensors) tensors[i].offset += shard.header_bytes;
  return {};
}

void SafetensorsWriter::State::write_index() {
  if (shards.size() == 1) return;
  std::map<std::string_view, std::size_t> by_name;
  for (const Tensor& tensor : tensors) by_name.emplace(tensor.plan.name, tensor.shard);
  index = fmt::format("{{\n  \"metadata\": {{\n    \"total_size\": {}\n  }},\n  \"weight_map\": {{", total);
  const char* separator = "\n";
  for (const auto& [name, shard] : by_name) {
    index += fmt::format("{}    {}: {}", separator, json_string(name), json_string(shards[shard].name));
    separator = ",\n";
  }
  index += "\n  }\n}\n";
}

Status SafetensorsWriter::State::open(Shard& shard) {
  if (Status status = shard.file.create(temporary_name(folder / shard.name)); !status) return status;
  shard.stage = Shard::Stage::kOpen;
  const std::string header = std::exchange(shard.header, {});
  return shard.file.write_at(0, std::as_bytes(std::span(header)));
}

Status SafetensorsWriter::State::settle(Shard& shard) {
  if (Status status = shard.file.settle(); !status) return status;
  shard.stage = Shard::Stage::kSettled;
  return {};
}

// Removes what stands on disk under whatever name.
void SafetensorsWriter::State::take_back() {
  std::error_code ignored;
  for (Shard& shard : shards) {
    if (shard.stage == Shard::Stage::kPlanned) continue;
    const fs::path path = folder / shard.name;
    shard.file = {};
    fs::remove(shard.stage == Shard::Stage::kNamed ? path : temporary_name(path), ignored);
    shard.stage = Shard::Stage::kPlanned;
  }
  if (finished && !index.empty()) fs::remove(folder / kIndexName, ignored);
}

SafetensorsWriter::SafetensorsWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}

SafetensorsWriter::~SafetensorsWriter() {
  if (!state_->finished) state_->take_back();
}

Expected<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::create(fs::path folder,
                                                                       std::vector<PlannedTensor> tensors,
                                                                       const Options& options) {
  auto state = std::make_unique<State>();
  state->folder = std::move(folder);
  if (options.shard_bytes < 1) {
    return make_error(ErrorCode::kInvalidArgument, "a shard has at least one byte", "shard_bytes");
  }
  if (Status status = state->place(std::move(tensors), options.shard_bytes); !status) return status.error();
  const std::size_t count = state->shards.size();
  for (std::size_t i = 0; i < count; ++i) {
    State::Shard& shard = state->shards[i];
    shard.name = count == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, count);
    if (Status status = state->lay_out(shard); !status) return status.error();
  }
  state->write_index();
  return std::unique_ptr<SafetensorsWriter>(new SafetensorsWriter(std::move(state)));
}

std::int64_t SafetensorsWriter::total_bytes() const {
  std::int64_t bytes = state_->total + static_cast<std::int64_t>(state_->index.size());
  for (const State::Shard& shard : state_->shards) bytes += shard.header_bytes;
  return bytes;
}

std::size_t SafetensorsWriter::shard_count() const {
  return state_->shards.size();
}

Status SafetensorsWriter::append(std::size_t index, std::span<const std::byte> bytes) {
  State::Tensor& tensor = state_->tensors.at(index);
  State::Shard& shard = state_->shards[tensor.shard];
  const auto size = static_cast<std::int64_t>(bytes.size());
  if (size > tensor.bytes - tensor.filled) {
    return make_error(ErrorCode::kInternal, fmt::format("{}: more bytes than the tensor has", tensor.plan.name),
                      tensor.plan.name);
  }
  if (size == 0) return {};
  if (shard.stage == State::Shard::Stage::kPlanned) {
    if (Status status = state_->open(shard); !status) return status;
  }
  if (Status status = shard.file.write_at(tensor.offset + tensor.filled, bytes); !status) return status;
  tensor.filled += size;
  shard.missing -= size;
  return shard.missing == 0 ? state_->settle(shard) : Status{};
}

Status SafetensorsWriter::finish() {
  for (const State::Tensor& tensor : state_->tensors) {
    if (tensor.filled == tensor.bytes) continue;
    return make_error(ErrorCode::kInternal,
                      fmt::format("{}: {} of {} bytes were written", tensor.plan.name, tensor.filled, tensor.bytes),
                      tensor.plan.name);
  }
  for (State::Shard& shard : state_->shards) {
    if (shard.stage != State::Shard::Stage::kPlanned) continue;  // only a shard without bytes is still closed
    if (Status status = state_->open(shard); !status) return status;
    if (Status status = state_->settle(shard); !status) return status;
  }
  for (State::Shard& shard : state_->shards) {
    const fs::path path = state_->folder / shard.name;
    if (Status status = rename_file(temporary_name(path), path); !status) return status;
    shard.stage = State::Shard::Stage::kNamed;
    state_->files.push_back(shard.name);
  }
  if (!state_->index.empty()) {
    if (Status status = write_file(state_->folder / kIndexName, state_->index); !status) return status;
    state_->files.emplace_back(kIndexName);
  }
  sync_folder(state_->folder);
  state_->finished = true;
  return {};
}

void SafetensorsWriter::discard() {
  state_->take_back();
}

const std::vector<std::string>& SafetensorsWriter::files() const {
  return state_->files;
}

Status write_file(const fs::path& path, std::string_view text) {
  const fs::path temporary = temporary_name(path);
  OutputFile file;
  Status status = file.create(temporary);
  if (!status) return status;
  status = file.write_at(0, std::as_bytes(std::span(text)));
  if (status) status = file.settle();
  if (status) status = rename_file(temporary, path);
  if (!status) {
    std::error_code ignored;
    fs::remove(temporary, ignored);
    return status;
  }
  sync_folder(path.parent_path());
  return {};
}

}  // namespace sterling::formats
