#include "platform/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <system_error>
#include <utility>

namespace sterling::platform {

namespace {

std::string errno_text(int error) {
  return std::generic_category().message(error);
}

Error open_error(const std::string& path, int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR: return make_error(ErrorCode::kNotFound, path + ": no such file", path);
    case EACCES:
    case EPERM: return make_error(ErrorCode::kPermission, path + ": may not be read (" + errno_text(error) + ")", path);
    default: return make_error(ErrorCode::kIo, path + ": cannot be opened: " + errno_text(error), path);
  }
}

// Closes on every way out of open(); the mapping does not need the descriptor.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

Expected<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  const std::string name = path.string();
  // Without O_NONBLOCK opening a pipe would wait for a writer.
  const Descriptor file(::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return open_error(name, errno);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return open_error(name, errno);
  if (S_ISDIR(info.st_mode)) {
    return make_error(ErrorCode::kInvalidArgument, name + ": is a directory, expected a file", name);
  }
  if (!S_ISREG(info.st_mode)) {
    return make_error(ErrorCode::kInvalidArgument, name + ": is not a regular file", name);
  }

  MappedFile mapped;
  mapped.path_ = name;
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (size == 0) return mapped;
  if (size > SIZE_MAX / 2) return make_error(ErrorCode::kResourceExhausted, name + ": too large to be mapped", name);
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (address == MAP_FAILED) {
    return make_error(ErrorCode::kIo, name + ": cannot be mapped: " + errno_text(errno), name);
  }
  mapped.data_ = {static_cast<const std::byte*>(address), static_cast<std::size_t>(size)};
  return mapped;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, {})), path_(std::move(other.path_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(path_, other.path_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!data_.empty()) ::munmap(const_cast<std::byte*>(data_.data()), data_.size());
}

bool MappedFile::contains(std::span<const std::byte> range) const {
  const auto begin = reinterpret_cast<std::uintptr_t>(data_.data());
  const auto first = reinterpret_cast<std::uintptr_t>(range.data());
  return first >= begin && first - begin <= data_.size() && range.size() <= data_.size() - (first - begin);
}

void MappedFile::advise_sequential(std::span<const std::byte> range) const {
  advise(range, MADV_SEQUENTIAL);
}

void MappedFile::advise_will_need(std::span<const std::byte> range) const {
  advise(range, MADV_WILLNEED);
}

void MappedFile::release(std::span<const std::byte> range) const {
  advise(range, MADV_DONTNEED);
}

void MappedFile::advise(std::span<const std::byte> range, int advice) const {
  if (range.empty() || !contains(range)) return;
  // Whole pages, outwards: our pages are never written, so a neighbour that is dropped along comes back from the file.
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<std::uintptr_t>(range.data());
  const std::uintptr_t begin = first / page * page;
  // A hint: an error (an old kernel, locked pages) changes nothing that a caller could act on.
  (void)::madvise(reinterpret_cast<void*>(begin), first + range.size() - begin, advice);
}

}  // namespace sterling::platform
