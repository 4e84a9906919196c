#include "hub/workers.h"

#include <algorithm>
#include <thread>

#include <fmt/format.h>

#include "hub/fetch_part.h"

namespace sterling::hub {
namespace {

constexpr std::chrono::milliseconds kTick(100);

// Runs `body` on `count` threads, each with a connection of its own, until all have returned. The first error stops the client, and so
// the others.
Status run_threads(Client& client, int count, const std::function<Status(HttpSession&)>& body,
                   const std::function<void()>& while_waiting) {
  std::mutex mutex;
  std::condition_variable changed;
  Status result;
  int running = count;
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&] {
      HttpSession session(client.http_options());
      Status status = body(session);
      const std::lock_guard lock(mutex);
      if (!status && result.ok()) {
        result = std::move(status);
        client.stop();
      }
      --running;
      changed.notify_all();
    });
  }
  {
    std::unique_lock lock(mutex);
    while (!changed.wait_for(lock, kTick, [&] { return running == 0; })) {
      lock.unlock();
      if (while_waiting) while_waiting();
      lock.lock();
    }
  }
  for (std::thread& thread : threads) thread.join();
  if (while_waiting) while_waiting();
  return result;
}

}  // namespace

Status for_each(Client& client, int jobs, std::size_t count,
                const std::function<Status(HttpSession&, std::size_t)>& work,
                const std::function<void()>& while_waiting) {
  if (count == 0) return {};
  std::atomic<std::size_t> next = 0;
  const auto body = [&](HttpSession& session) -> Status {
    for (std::size_t i = next++; i < count; i = next++) {
      if (client.stopped()) return stopped_error();
      if (Status status = work(session, i); !status) return status;
    }
    return {};
  };
  return run_threads(client, static_cast<int>(std::min<std::size_t>(static_cast<std::size_t>(jobs), count)), body,
                     while_waiting);
}

Fetcher::Fetcher(Client& client, const CacheRepo& cache, FetchOptions options, std::vector<WantedBlob> blobs)
    : client_(client), cache_(cache), options_(std::move(options)) {
  for (WantedBlob& blob : blobs) {
    jobs_.push_back(std::make_unique<Job>(std::move(blob), options_.part_bytes, position_));
  }
}

Status Fetcher::run(const std::function<void()>& while_waiting) {
  if (jobs_.empty()) return {};
  const auto body = [this](HttpSession& session) -> Status {
    while (true) {
      if (client_.stopped()) return stopped_error();
      bool finished = false;
      const auto task = next_task(&finished);
      if (finished) return {};
      if (!task) {
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, kTick);  // also asks again for blobs that another process holds
        continue;
      }
      Status status = task->part ? fetch(session, *task) : open(*task->job);
      {
        const std::lock_guard lock(mutex_);
        --task->job->workers;
      }
      changed_.notify_all();
      if (!status) return status;
    }
  };
  return run_threads(client_, options_.jobs, body, while_waiting);
}

std::string Fetcher::what(const Job& job) const {
  return fmt::format("{}: {}", options_.repo, job.download.wanted().paths.front());
}

void Fetcher::set_phase(Job& job, Phase phase) {
  const std::lock_guard lock(mutex_);
  job.phase = phase;
}

// Something to do for this job, with mutex_ held.
std::optional<Fetcher::Task> Fetcher::task_of(Job& job, int most_workers) {
  if (job.workers >= most_workers) return std::nullopt;
  if (job.phase == Phase::kWaiting) {
    auto lock = cache_.try_lock(job.download.wanted().blob);
    if (lock.ok() && !lock->valid()) {
      if (!job.announced && client_.log()) {
        client_.log()(LogLevel::kInfo, what(job) + ": another process is downloading it; waiting");
      }
      job.announced = true;
      return std::nullopt;
    }
    if (lock.ok()) {
      job.lock = std::move(*lock);
    } else {
      job.lock_fault = lock.error();
    }
    job.phase = Phase::kOpening;
    return Task{&job, nullptr};
  }
  if (job.phase != Phase::kRunning) return std::nullopt;
  // Parked parts are memory: at most two per worker, of all blobs together.
  int open_parts = 0;
  for (const auto& each : jobs_) open_parts += each->download.open_parts();
  auto part = job.download.claim(open_parts < 2 * options_.jobs);
  if (!part) return std::nullopt;
  return Task{&job, std::move(part)};
}

std::optional<Fetcher::Task> Fetcher::next_task(bool* finished) {
  const std::lock_guard lock(mutex_);
  *finished = std::all_of(jobs_.begin(), jobs_.end(), [](const auto& job) { return job->phase == Phase::kDone; });
  if (*finished) return std::nullopt;
  // Half of the workers at most on one blob, so that hashing does not wait for one file; all of them where nothing else is left.
  for (const int most : {std::max(1, options_.jobs / 2), options_.jobs}) {
    for (const auto& job : jobs_) {
      if (job->phase == Phase::kDone) continue;
      if (auto task = task_of(*job, most)) {
        ++task->job->workers;
        return task;
      }
    }
  }
  return std::nullopt;
}

Status Fetcher::open(Job& job) {
  if (!job.lock_fault) return job.lock_fault;
  const WantedBlob& wanted = job.download.wanted();
  const auto there = cache_.blob_size(wanted.blob);
  if (there && (!wanted.size || *there == *wanted.size)) {  // the other process was faster
    position_ += *there;
    resumed_ += *there;
    return close(job);
  }
  const auto stopped = [this] { return client_.stopped(); };
  auto file = BlobFile::open(cache_.incomplete(wanted.blob), wanted.size, wanted.hash, stopped);
  if (!file) return file.error().code == ErrorCode::kCancelled ? stopped_error() : file.error();
  resumed_ += file->written();
  const bool complete = wanted.size && file->written() == *wanted.size;
  job.download.start(std::move(*file));
  if (complete) return close(job);
  set_phase(job, Phase::kRunning);
  return {};
}

Status Fetcher::fetch(HttpSession& session, const Task& task) {
  Job& job = *task.job;
  const std::string name = what(job);
  const std::string url = client_.file_url(options_.commit, job.download.wanted().paths.front());
  auto result = fetch_part(client_, session, job.download, *task.part, url, name);
  if (!result) return result.error();
  if (*result == PartResult::kDropped) return {};
  auto complete = job.download.complete(task.part);
  if (!complete) return complete.error();
  return *complete ? close(job) : Status();
}

// All bytes are there: are they the right ones? Only one worker comes here.
Status Fetcher::close(Job& job) {
  set_phase(job, Phase::kClosing);
  const WantedBlob& wanted = job.download.wanted();
  if (job.download.started()) {
    BlobFile& file = job.download.file();
    const auto stopped = [this] { return client_.stopped(); };
    if (Status status = file.verify(stopped); !status) {
      if (status.error().code == ErrorCode::kCancelled) return stopped_error();
      if (status.error().code != ErrorCode::kCorrupt) return status;
      const bool resumed = file.resumed_from() > 0;
      resumed_ -= file.resumed_from();
      if (Status again = job.download.restart(); !again) return again;
      if (resumed && !job.retried) {
        // The beginning came from an earlier run, perhaps of another program: one more try, from nothing.
        if (client_.log()) {
          client_.log()(LogLevel::kWarning, fmt::format("{}: {}; fetching it anew", what(job), status.error().message));
        }
        job.retried = true;
        set_phase(job, Phase::kRunning);
        return {};
      }
      cache_.remove_incomplete(wanted.blob);
      return make_error(
          ErrorCode::kCorrupt,
          fmt::format("{}: {}; it was thrown away, nothing else was touched. If it happens again, the hub or something "
                      "on the way to it is broken",
                      what(job), status.error().message),
          wanted.paths.front());
    }
    if (Status status = file.publish(cache_.blob(wanted.blob)); !status) return status;
  }
  for (const std::string& path : wanted.paths) {
    if (Status status = cache_.link(options_.commit, path, wanted.blob); !status) return status;
  }
  job.lock.reset();
  set_phase(job, Phase::kDone);
  return {};
}

}  // namespace sterling::hub
