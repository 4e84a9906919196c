// The threads of a pull. Internal to hub/.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "hub/blob_download.h"
#include "hub/cache_repo.h"
#include "hub/client.h"

namespace sterling::hub {

// Runs `work(session, index)` for every index below `count` on up to `jobs` threads until one fails; `while_waiting` runs on the calling
// thread some times a second. The first error, if any.
Status for_each(Client& client, int jobs, std::size_t count,
                const std::function<Status(HttpSession&, std::size_t)>& work,
                const std::function<void()>& while_waiting);

struct FetchOptions {
  int jobs = 1;
  std::int64_t part_bytes = 0;
  std::string commit;
  std::string repo;  // for messages
};

// Fetches blobs into the cache, several at a time and several parts of a large one, and links each to its paths when it is complete.
class Fetcher {
 public:
  Fetcher(Client& client, const CacheRepo& cache, FetchOptions options, std::vector<WantedBlob> blobs);

  Status run(const std::function<void()>& while_waiting);

  // Bytes of these blobs that are on this machine, and bytes that came over the network. Readable at any time.
  std::int64_t position() const { return position_; }
  std::int64_t received() const { return position_ - resumed_; }

 private:
  enum class Phase { kWaiting, kOpening, kRunning, kClosing, kDone };
  struct Job {
    Job(WantedBlob wanted, std::int64_t part_bytes, std::atomic<std::int64_t>& position)
        : download(std::move(wanted), part_bytes, position) {}
    Phase phase = Phase::kWaiting;
    int workers = 0;
    bool retried = false;    // its bytes were wrong once and are fetched anew
    bool announced = false;  // that another process has it
    FileDescriptor lock;
    Status lock_fault;
    BlobDownload download;
  };
  struct Task {
    Job* job = nullptr;
    std::shared_ptr<Part> part;  // none: the job is to be opened
  };

  Status work(HttpSession& session);
  std::optional<Task> next_task(bool* finished);
  std::optional<Task> task_of(Job& job, int most_workers);
  Status open(Job& job);
  Status fetch(HttpSession& session, const Task& task);
  Status close(Job& job);
  std::string what(const Job& job) const;
  void set_phase(Job& job, Phase phase);

  Client& client_;
  const CacheRepo& cache_;
  const FetchOptions options_;
  std::atomic<std::int64_t> position_ = 0;
  std::atomic<std::int64_t> resumed_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Job>> jobs_;
};

}  // namespace sterling::hub
