// A whole file, mapped read-only. Move-only owner of the mapping; thread-safe for reading.
//
// The mapping shows the file as it is on disk: a process that shortens the file while it is mapped makes later reads fail with
// SIGBUS. Checkpoints are not changed in place by well-behaved tools (they write a new file and rename it), so we map.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "base/status.h"

namespace sterling::platform {

class MappedFile {
 public:
  // kNotFound: no such file. kPermission: unreadable. kInvalidArgument: a directory, a pipe or a device. kIo: the rest.
  // An empty file is fine and has empty data().
  static Expected<MappedFile> open(const std::filesystem::path& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> data() const { return data_; }
  const std::string& path() const { return path_; }
  bool contains(std::span<const std::byte> range) const;

  // Hints to the kernel's read-ahead; they never fail and never change results. `range` lies within data().
  void advise_sequential(std::span<const std::byte> range) const;
  void advise_will_need(std::span<const std::byte> range) const;

  // Drops the pages that hold `range` from this process (they may stay in the page cache). Reading them again is allowed and
  // reads the file again.
  void release(std::span<const std::byte> range) const;

 private:
  void advise(std::span<const std::byte> range, int advice) const;

  std::span<const std::byte> data_;
  std::string path_;
};

}  // namespace sterling::platform
