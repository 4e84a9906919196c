#include "hub/blob_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include <fmt/format.h>

namespace sterling::hub {

BlobFile::BlobFile(std::filesystem::path path, std::optional<std::int64_t> size, std::string hash)
    : path_(std::move(path)), size_(size), hash_(std::move(hash)), kind_(hash_kind(hash_)) {}

Expected<BlobFile> BlobFile::open(std::filesystem::path incomplete, std::optional<std::int64_t> size, std::string hash,
                                  const std::function<bool()>& stopped) {
  BlobFile blob(std::move(incomplete), size, std::move(hash));
  blob.file_ = FileDescriptor(::open(blob.path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (!blob.file_.valid()) return system_error(errno, "can't be opened for writing", blob.path_);
  struct stat status {};
  if (fstat(blob.file_.get(), &status) != 0) return system_error(errno, "can't be read", blob.path_);
  if (!S_ISREG(status.st_mode)) {
    return make_error(ErrorCode::kPermission, fmt::format("{}: is no regular file", blob.path_.string()));
  }
  if (size && status.st_size > *size) {
    if (Status restarted = blob.restart(); !restarted) return restarted.error();
    return blob;
  }
  blob.written_ = blob.resumed_from_ = status.st_size;
  if (Status hashed = blob.hash_from_disk(stopped); !hashed) return hashed.error();
  return blob;
}

void BlobFile::start_digest() {
  digest_.reset();
  if (!kind_ || (*kind_ == HashKind::kGitBlob && !size_)) return;
  digest_.emplace(*kind_, size_.value_or(0));
}

Status BlobFile::hash_from_disk(const std::function<bool()>& stopped) {
  start_digest();
  if (digest_) {
    constexpr std::int64_t kPiece = std::int64_t{1} << 20;
    std::vector<char> buffer(static_cast<std::size_t>(std::min(kPiece, written_)));
    for (std::int64_t at = 0; at < written_;) {
      if (stopped && stopped()) return make_error(ErrorCode::kCancelled, "stopped");
      const auto wanted = static_cast<std::size_t>(std::min(kPiece, written_ - at));
      const ssize_t got = pread(file_.get(), buffer.data(), wanted, at);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return system_error(got < 0 ? errno : EIO, "can't be read", path_);
      digest_->update({buffer.data(), static_cast<std::size_t>(got)});
      at += got;
    }
  }
  if (lseek(file_.get(), written_, SEEK_SET) < 0) return system_error(errno, "can't be positioned", path_);
  return {};
}

Status BlobFile::append(std::string_view bytes) {
  if (digest_) digest_->update(bytes);
  while (!bytes.empty()) {
    const ssize_t put = write(file_.get(), bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return system_error(errno, "can't be written", path_);
    bytes.remove_prefix(static_cast<std::size_t>(put));
    written_ += put;
  }
  return {};
}

Status BlobFile::restart() {
  if (ftruncate(file_.get(), 0) != 0 || lseek(file_.get(), 0, SEEK_SET) < 0) {
    return system_error(errno, "can't be emptied", path_);
  }
  written_ = resumed_from_ = 0;
  start_digest();
  return {};
}

Status BlobFile::verify(const std::function<bool()>& stopped) {
  if (size_ && written_ != *size_) {
    return make_error(ErrorCode::kCorrupt, fmt::format("{} bytes arrived, the hub says {}", written_, *size_));
  }
  if (!kind_) return {};
  if (!digest_) {
    size_ = written_;
    if (Status status = hash_from_disk(stopped); !status) return status;
  }
  const std::string found = digest_->finish();
  digest_.reset();
  if (found != hash_) {
    return make_error(ErrorCode::kCorrupt,
                      fmt::format("the {} of what arrived is {}, the hub says {}", hash_name(*kind_), found, hash_));
  }
  return {};
}

Status BlobFile::publish(const std::filesystem::path& blob) {
  if (fsync(file_.get()) != 0) return system_error(errno, "can't be brought to disk", path_);
  if (rename(path_.c_str(), blob.c_str()) != 0)
    return system_error(errno, "can't be renamed from its .incomplete", blob);
  sync_folder(blob.parent_path());
  file_.reset();
  return {};
}

}  // namespace sterling::hub
