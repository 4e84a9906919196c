// One repository's folder in the cache, for writing: the layout that huggingface_hub reads and writes.
//
//   CACHE/models--ORG--NAME/blobs/HASH             the bytes, named by their hash
//                           blobs/HASH.incomplete  a beginning of them
//                           snapshots/COMMIT/PATH  relative links to blobs
//                           refs/REVISION          the commit that a branch or tag was at the last finished download
//   CACHE/.locks/models--ORG--NAME/HASH.lock       flock(2) while a blob is being written, as huggingface_hub does
//
// Every name has passed hub/names.h before it comes here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/status.h"
#include "hub/names.h"
#include "hub/posix_file.h"

namespace sterling::hub {

class CacheRepo {
 public:
  CacheRepo(std::filesystem::path cache, const RepoId& repo);

  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path blob(const std::string& name) const { return folder_ / "blobs" / name; }
  std::filesystem::path incomplete(const std::string& name) const;
  std::filesystem::path snapshot(const std::string& commit) const { return folder_ / "snapshots" / commit; }

  // blobs/, snapshots/COMMIT/ and the folder of locks.
  Status prepare(const std::string& commit) const;

  // Size of a finished blob, or of what an unfinished one has; nothing when there is none.
  std::optional<std::int64_t> blob_size(const std::string& name) const;
  std::optional<std::int64_t> incomplete_size(const std::string& name) const;

  struct Linked {
    std::int64_t size = 0;
    std::string blob;  // empty: a plain file, from a file system without links
  };
  // What snapshots/COMMIT/PATH is when it is complete.
  std::optional<Linked> linked(const std::string& commit, const std::string& path) const;

  void remove_incomplete(const std::string& name) const;

  // snapshots/COMMIT/PATH → ../../blobs/NAME, replacing what is there.
  Status link(const std::string& commit, const std::string& path, const std::string& blob) const;

  // refs/REVISION := commit.
  Status write_reference(const std::string& revision, const std::string& commit) const;

  // Takes the blob's lock if nobody has it: an invalid descriptor when somebody has. Held until the descriptor closes.
  Expected<FileDescriptor> try_lock(const std::string& blob) const;

 private:
  std::filesystem::path folder_;
  std::filesystem::path locks_;
};

}  // namespace sterling::hub
