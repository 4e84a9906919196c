#include "hub/posix_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <system_error>

#include <fmt/format.h>

namespace sterling::hub {

namespace fs = std::filesystem;

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    reset();
    value_ = other.value_;
    other.value_ = -1;
  }
  return *this;
}

void FileDescriptor::reset() {
  if (value_ >= 0) close(value_);
  value_ = -1;
}

Error system_error(int number, std::string_view what, const fs::path& path) {
  ErrorCode code = ErrorCode::kIo;
  if (number == EACCES || number == EPERM || number == EROFS) code = ErrorCode::kPermission;
  if (number == ENOSPC || number == EDQUOT) code = ErrorCode::kResourceExhausted;
  return make_error(code, fmt::format("{}: {}: {}", path.string(), what, std::generic_category().message(number)),
                    path.string());
}

Status make_folders(const fs::path& folder) {
  std::error_code problem;
  fs::create_directories(folder, problem);
  if (problem) return system_error(problem.value(), "can't create this folder", folder);
  return {};
}

Status make_folders_within(const fs::path& root, const fs::path& relative) {
  fs::path at = root;
  for (const fs::path& part : relative.parent_path()) {
    at /= part;
    if (mkdir(at.c_str(), 0777) == 0) continue;
    const int number = errno;
    struct stat status {};
    if (number == EEXIST && lstat(at.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) continue;
    if (number == EEXIST) {
      return make_error(
          ErrorCode::kPermission,
          fmt::format("{}: is in the way: a folder is wanted there, not a link or a file; remove it", at.string()),
          at.string());
    }
    return system_error(number, "can't create this folder", at);
  }
  return {};
}

void sync_folder(const fs::path& folder) {
  const FileDescriptor opened(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.valid()) fsync(opened.get());
}

Status write_file_atomically(const fs::path& path, std::string_view text) {
  fs::path temporary = path;
  temporary += fmt::format(".{}.tmp", getpid());
  const FileDescriptor file(open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (!file.valid()) return system_error(errno, "can't be written", temporary);
  const auto written = write(file.get(), text.data(), text.size());
  if (written != static_cast<ssize_t>(text.size()) || fsync(file.get()) != 0) {
    const Error error = system_error(written >= 0 && errno == 0 ? EIO : errno, "can't be written", temporary);
    unlink(temporary.c_str());
    return error;
  }
  if (rename(temporary.c_str(), path.c_str()) != 0) {
    const Error error = system_error(errno, "can't be replaced", path);
    unlink(temporary.c_str());
    return error;
  }
  sync_folder(path.parent_path());
  return {};
}

Expected<std::int64_t> free_bytes(const fs::path& path) {
  fs::path at = fs::absolute(path);
  struct statvfs status {};
  while (statvfs(at.c_str(), &status) != 0) {
    if (errno != ENOENT || !at.has_relative_path()) return system_error(errno, "can't be asked for its free space", at);
    at = at.parent_path();
  }
  const auto blocks = static_cast<std::uint64_t>(status.f_bavail);
  const auto size = static_cast<std::uint64_t>(status.f_frsize);
  const auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  return static_cast<std::int64_t>(size != 0 && blocks > most / size ? most : blocks * size);
}

}  // namespace sterling::hub
