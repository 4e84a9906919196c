// A blob while it arrives: blobs/HASH.incomplete, which always holds a beginning of the file and nothing else, so that any program
// that knows the layout may go on with it. Not thread-safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "hub/digest.h"
#include "hub/posix_file.h"

namespace sterling::hub {

class BlobFile {
 public:
  // Opens or creates it and hashes what is there. `hash` is the blob's name or, where that is no hash, what the hub's list says; without
  // one only the size is checked. `stopped` ends the reading of a long beginning (kCancelled).
  static Expected<BlobFile> open(std::filesystem::path incomplete, std::optional<std::int64_t> size, std::string hash,
                                 const std::function<bool()>& stopped);

  std::int64_t written() const { return written_; }
  std::int64_t resumed_from() const { return resumed_from_; }

  Status append(std::string_view bytes);
  // Throws away what is there.
  Status restart();
  // Size and hash. kCorrupt says both values; the file is then of no use.
  Status verify(const std::function<bool()>& stopped);
  // To disk, then to its name, in one step.
  Status publish(const std::filesystem::path& blob);

 private:
  BlobFile(std::filesystem::path path, std::optional<std::int64_t> size, std::string hash);
  Status hash_from_disk(const std::function<bool()>& stopped);
  void start_digest();

  std::filesystem::path path_;
  std::optional<std::int64_t> size_;
  std::string hash_;
  std::optional<HashKind> kind_;
  std::optional<Digest> digest_;  // of the bytes so far; none when git's hash waits for the size
  FileDescriptor file_;
  std::int64_t written_ = 0;
  std::int64_t resumed_from_ = 0;
};

}  // namespace sterling::hub
