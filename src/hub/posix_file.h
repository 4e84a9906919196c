// A file descriptor with an owner, and the few calls on files that the standard library lacks. Errors name the path.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/status.h"

namespace sterling::hub {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int value) : value_(value) {}
  ~FileDescriptor() { reset(); }
  FileDescriptor(FileDescriptor&& other) noexcept : value_(other.value_) { other.value_ = -1; }
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;

  int get() const { return value_; }
  bool valid() const { return value_ >= 0; }
  void reset();

 private:
  int value_ = -1;
};

// kPermission, kResourceExhausted (disk full, quota) or kIo, with the system's reason.
Error system_error(int number, std::string_view what, const std::filesystem::path& path);

// Creates the folder and its parents; fine when it is there.
Status make_folders(const std::filesystem::path& folder);

// Creates the parents of root/relative one by one below `root`, which exists; a symbolic link among them is refused: it would lead out.
Status make_folders_within(const std::filesystem::path& root, const std::filesystem::path& relative);

// Makes sure that the entries of a folder survive a loss of power. Errors are of no use to anybody and dropped.
void sync_folder(const std::filesystem::path& folder);

// Writes through a temporary neighbour and renames.
Status write_file_atomically(const std::filesystem::path& path, std::string_view text);

// Free bytes for this user where `path` is or will be.
Expected<std::int64_t> free_bytes(const std::filesystem::path& path);

}  // namespace sterling::hub
