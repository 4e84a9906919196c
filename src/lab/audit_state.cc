#include "lab/audit_state.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <type_traits>

#include <fmt/format.h>

namespace sterling::lab {
namespace {

static_assert(std::is_trivially_copyable_v<PositionCost>);

struct RecordHeader {
  std::uint32_t magic = 0;
  std::int32_t choice = 0;
  std::int32_t prompt = 0;
  std::uint32_t rows = 0;
  GreedyCost greedy;
  std::uint32_t reserved = 0;
  std::uint64_t checksum = 0;  // FNV-1a of the header with checksum 0, then of the rows
};
static_assert(std::is_trivially_copyable_v<RecordHeader>);
constexpr std::uint32_t kMagic = 0x31545541;

std::uint64_t fnv(std::string_view bytes, std::uint64_t hash) {
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

std::string_view bytes_of(const RecordHeader& header) {
  return {reinterpret_cast<const char*>(&header), sizeof(header)};
}

std::uint64_t checksum(RecordHeader header, std::string_view rows) {
  header.checksum = 0;
  return fnv(rows, fnv(bytes_of(header), 0xcbf29ce484222325ULL));
}

Error failed(const std::string& path, std::string_view doing) {
  return make_error(ErrorCode::kIo, fmt::format("{}: {}: {}", path, doing, std::strerror(errno)), path);
}

std::string first_line(const std::string& key) {
  return fmt::format("sterling-audit-state 1 {} {}\n", sizeof(PositionCost), key);
}

Expected<std::string> read_all(int file, const std::string& path) {
  std::string text;
  char buffer[1 << 16];
  while (true) {
    const ssize_t got = ::read(file, buffer, sizeof(buffer));
    if (got < 0) return failed(path, "can't be read");
    if (got == 0) return text;
    text.append(buffer, static_cast<std::size_t>(got));
  }
}

Status write_all(int file, const std::string& path, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(file, bytes.data(), bytes.size());
    if (put < 0) return failed(path, "can't be written");
    bytes.remove_prefix(static_cast<std::size_t>(put));
  }
  if (::fdatasync(file) != 0) return failed(path, "can't be flushed");
  return {};
}

}  // namespace

AuditState::AuditState(AuditState&& other) noexcept
    : path_(std::move(other.path_)), file_(std::exchange(other.file_, -1)), records_(std::move(other.records_)) {}

AuditState::~AuditState() {
  if (file_ >= 0) ::close(file_);
}

Expected<AuditState> AuditState::open(const std::string& path, const std::string& key) {
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) return failed(path, "can't be opened");
  AuditState state(path, file);
  if (Status status = state.load(key); !status) return status.error();
  return state;
}

Status AuditState::load(const std::string& key) {
  const auto text = read_all(file_, path_);
  if (!text) return text.error();
  const std::string head = first_line(key);
  // An empty file, or one that was cut off within its first line.
  if (head.starts_with(*text) && text->size() < head.size()) {
    if (::ftruncate(file_, 0) != 0 || ::lseek(file_, 0, SEEK_SET) < 0) return failed(path_, "can't be cut");
    return write_all(file_, path_, head);
  }
  if (!text->starts_with(head)) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("{} is no state of this audit: the model, prompts, choices or version were others; "
                                  "accepted: another --state, or "
                                  "--fresh to start anew",
                                  path_),
                      "--state");
  }
  std::size_t at = head.size();
  while (at + sizeof(RecordHeader) <= text->size()) {
    RecordHeader header;
    std::memcpy(static_cast<void*>(&header), text->data() + at, sizeof(header));
    const std::size_t bytes = std::size_t{header.rows} * sizeof(PositionCost);
    if (header.magic != kMagic || bytes > text->size() - at - sizeof(header)) break;
    const std::string_view rows = std::string_view(*text).substr(at + sizeof(header), bytes);
    if (checksum(header, rows) != header.checksum) break;
    PromptCost cost;
    cost.greedy = header.greedy;
    cost.rows.resize(header.rows);
    if (bytes > 0) std::memcpy(static_cast<void*>(cost.rows.data()), rows.data(), bytes);
    records_[{header.choice, header.prompt}] = std::move(cost);
    at += sizeof(header) + bytes;
  }
  if (::ftruncate(file_, static_cast<off_t>(at)) != 0 || ::lseek(file_, static_cast<off_t>(at), SEEK_SET) < 0) {
    return failed(path_, "can't be cut");
  }
  return {};
}

const PromptCost* AuditState::find(std::int32_t choice, std::int32_t prompt) const {
  const auto found = records_.find({choice, prompt});
  return found == records_.end() ? nullptr : &found->second;
}

Status AuditState::append(std::int32_t choice, std::int32_t prompt, PromptCost cost) {
  RecordHeader header;
  header.magic = kMagic;
  header.choice = choice;
  header.prompt = prompt;
  header.rows = static_cast<std::uint32_t>(cost.rows.size());
  header.greedy = cost.greedy;
  const std::string_view rows(reinterpret_cast<const char*>(cost.rows.data()), cost.rows.size() * sizeof(PositionCost));
  header.checksum = checksum(header, rows);
  std::string bytes(bytes_of(header));
  bytes += rows;
  if (Status status = write_all(file_, path_, bytes); !status) return status;
  records_[{choice, prompt}] = std::move(cost);
  return {};
}

}  // namespace sterling::lab
