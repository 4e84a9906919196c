// A revision of a repository into the cache: listed, chosen, checked against the disk, fetched in parallel, verified, linked. What is there
// already is not fetched again, and what an interrupted run left is gone on with.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "hub/client.h"
#include "hub/names.h"

namespace sterling::hub {

struct PullProgress {
  std::int64_t bytes_done = 0;   // there, from this run or before
  std::int64_t bytes_total = 0;  // of files whose size is known
};

struct PullOptions {
  RepoId repo;
  std::string revision = "main";
  std::filesystem::path cache;
  std::vector<std::string> include, exclude;  // hub/glob.h
  bool dry_run = false;
  int jobs = 8;  // connections at a time; memory is about 2 × jobs × part_bytes at most
  std::int64_t part_bytes = std::int64_t{8} << 20;
  ClientOptions client;                               // its `stopped` ends the pull; asked from several threads
  std::function<void(const PullProgress&)> progress;  // from the calling thread, some times a second
};

enum class PullState {
  kCached,      // was there, complete
  kDownloaded,  // fetched now, wholly or to its end
  kMissing,     // would be fetched (dry run)
};
std::string_view pull_state_name(PullState state);  // "cached", "downloaded", "missing"

struct PulledFile {
  std::string path;
  std::optional<std::int64_t> size;
  std::string blob;  // its name in blobs/
  PullState state = PullState::kCached;
};

struct PullReport {
  std::string commit;
  std::filesystem::path snapshot;
  std::vector<PulledFile> files;    // in the order of their paths
  std::int64_t bytes_total = 0;     // of the chosen files
  std::int64_t bytes_missing = 0;   // of them, what was not there when the pull began
  std::int64_t bytes_received = 0;  // over the network
};

// Errors: kNotFound (model, revision, file, or no file chosen), kPermission (token, gate, disk rights), kResourceExhausted (disk space, before
// the first byte), kCorrupt (hash, size, hostile names or answers), kUnavailable (network), kCancelled. Finished files stay in any case.
Expected<PullReport> pull(const PullOptions& options);

}  // namespace sterling::hub
