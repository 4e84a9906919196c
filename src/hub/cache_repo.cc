#include "hub/cache_repo.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include <fmt/format.h>

namespace sterling::hub {
namespace {

namespace fs = std::filesystem;

std::optional<std::int64_t> size_of_file(const fs::path& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  return status.st_size;
}

}  // namespace

CacheRepo::CacheRepo(fs::path cache, const RepoId& repo)
    : folder_(cache / repo.folder()), locks_(cache / ".locks" / repo.folder()) {}

fs::path CacheRepo::incomplete(const std::string& name) const {
  return folder_ / "blobs" / (name + ".incomplete");
}

Status CacheRepo::prepare(const std::string& commit) const {
  for (const fs::path& folder : {folder_ / "blobs", snapshot(commit), locks_}) {
    if (Status status = make_folders(folder); !status) return status;
  }
  return {};
}

std::optional<std::int64_t> CacheRepo::blob_size(const std::string& name) const {
  return size_of_file(blob(name));
}

std::optional<std::int64_t> CacheRepo::incomplete_size(const std::string& name) const {
  return size_of_file(incomplete(name));
}

void CacheRepo::remove_incomplete(const std::string& name) const {
  unlink(incomplete(name).c_str());
}

std::optional<CacheRepo::Linked> CacheRepo::linked(const std::string& commit, const std::string& path) const {
  const fs::path pointer = snapshot(commit) / path;
  const auto size = size_of_file(pointer);
  if (!size) return std::nullopt;
  std::error_code not_a_link;
  return Linked{*size, fs::read_symlink(pointer, not_a_link).filename().string()};
}

Status CacheRepo::link(const std::string& commit, const std::string& path, const std::string& blob) const {
  const fs::path root = snapshot(commit);
  if (Status status = make_folders_within(root, path); !status) return status;
  fs::path target = "../..";  // snapshots/COMMIT/ back to the repository
  for (fs::path at = fs::path(path).parent_path(); !at.empty(); at = at.parent_path()) target /= "..";
  target = target / "blobs" / blob;
  const fs::path pointer = root / path;
  // A rename puts the new link in place of an old one; readers see either.
  fs::path temporary = pointer.parent_path() / fmt::format(".{}.{}.tmp", blob.substr(0, 32), getpid());
  unlink(temporary.c_str());
  if (symlink(target.c_str(), temporary.c_str()) != 0) {
    const int number = errno;
    Error error = system_error(number, "can't make a symbolic link", pointer);
    if (number == EPERM || number == EOPNOTSUPP || number == ENOSYS) {
      error.message += "; this file system has none: set HF_HUB_CACHE to a folder on another one";
    }
    return error;
  }
  if (rename(temporary.c_str(), pointer.c_str()) != 0) {
    const Error error = system_error(errno, "can't be replaced by a link to its blob", pointer);
    unlink(temporary.c_str());
    return error;
  }
  return {};
}

Status CacheRepo::write_reference(const std::string& revision, const std::string& commit) const {
  if (revision == commit) return {};
  const fs::path root = folder_ / "refs";
  std::ifstream there(root / revision, std::ios::binary);
  std::string now;
  if (there >> now && now == commit) return {};  // a cache may be read-only, and complete
  if (Status status = make_folders(root); !status) return status;
  if (Status status = make_folders_within(root, revision); !status) return status;
  return write_file_atomically(root / revision, commit);
}

Expected<FileDescriptor> CacheRepo::try_lock(const std::string& blob) const {
  const fs::path path = locks_ / (blob + ".lock");
  while (true) {
    // Group-writable: users who share a cache lock the same file.
    FileDescriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0664));
    if (!file.valid()) return system_error(errno, "can't be opened", path);
    if (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) return FileDescriptor();
      if (errno == EINTR) continue;
      // File systems without locks exist. Renames keep the cache whole there; two downloads of one file would waste time.
      if (errno == ENOSYS || errno == EOPNOTSUPP || errno == ENOLCK) return file;
      return system_error(errno, "can't be locked", path);
    }
    // Some holders remove the file when they let go: then this lock is on a file that nobody else will find.
    struct stat mine {};
    struct stat named {};
    if (fstat(file.get(), &mine) == 0 && stat(path.c_str(), &named) == 0 && mine.st_ino == named.st_ino) return file;
  }
}

}  // namespace sterling::hub
