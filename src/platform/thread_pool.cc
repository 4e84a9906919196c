// How a region runs. The caller writes the region's fields, then untaken_ = tasks (release), then bumps epoch_ and wakes
// those who sleep. Everybody takes tasks by counting untaken_ down with compare-and-swap.
//
// A worker that comes late is harmless: taking a task is the only way into a region, a taken task keeps the region open until
// it is reported, and the region's fields are read only after the task was taken. So it doesn't matter which region the
// worker woke up for: if its compare-and-swap succeeds it works for the one that is open now. The caller therefore never
// waits for workers that did not take part (a parked thread needs 50 µs to wake up; small regions are over by then).
#include "platform/thread_pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <limits>
#include <string>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "platform/float_env.h"

namespace sterling::platform {
namespace {

static_assert(std::atomic<std::uint32_t>::is_always_lock_free && sizeof(std::atomic<std::uint32_t>) == 4,
              "the futex calls below take the address of the atomic's word");

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected) {
  // Returns at once when the word differs already; spurious returns are fine, every caller loops.
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

void futex_wake(std::atomic<std::uint32_t>& word, int count) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins until done() or until `limit` has passed; returns the last done().
template <typename Done>
bool spin_until(std::chrono::microseconds limit, Done done) {
  if (done()) return true;
  if (limit.count() == 0) return false;
  const auto deadline = std::chrono::steady_clock::now() + limit;
  do {
    for (int i = 0; i < 32; ++i) {
      if (done()) return true;
      cpu_relax();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return false;
}

Status pin_thread(pthread_t thread, int cpu) {
  const std::string where = "CPU " + std::to_string(cpu);
  if (cpu < 0 || cpu >= CPU_SETSIZE) {
    return make_error(ErrorCode::kInvalidArgument,
                      "cannot pin a thread to " + where + ": accepted are 0 to " + std::to_string(CPU_SETSIZE - 1),
                      where);
  }
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  const int failed = pthread_setaffinity_np(thread, sizeof(set), &set);
  if (failed != 0) {
    return make_error(ErrorCode::kPermission,
                      "cannot pin a thread to " + where + ": " + std::generic_category().message(failed) +
                          "; accepted are the CPUs of this process's affinity mask",
                      where);
  }
  return {};
}

}  // namespace

Expected<std::unique_ptr<ThreadPool>> ThreadPool::create(Options options) {
  if (options.threads == 0 || options.threads > kMaxThreads) {
    return make_error(ErrorCode::kInvalidArgument,
                      "thread pool of " + std::to_string(options.threads) + " threads: accepted are 1 to " +
                          std::to_string(kMaxThreads),
                      "threads");
  }
  if (options.threads > std::thread::hardware_concurrency()) options.spin = std::chrono::microseconds{0};
  std::unique_ptr<ThreadPool> pool(new ThreadPool(std::move(options)));
  if (Status started = pool->start(); !started.ok()) return started.error();
  return pool;
}

ThreadPool::ThreadPool(Options options) : options_(std::move(options)) {}

ThreadPool::~ThreadPool() {
  stop();
}

Status ThreadPool::start() {
  workers_.reserve(options_.threads - 1);
  for (std::size_t index = 1; index < options_.threads; ++index) {
    try {
      workers_.emplace_back([this, index] { worker_main(index); });
    } catch (const std::system_error& failure) {
      return make_error(ErrorCode::kResourceExhausted,
                        "cannot start compute thread " + std::to_string(index + 1) + " of " +
                            std::to_string(options_.threads) + ": " + failure.what(),
                        "threads");
    }
    if (!options_.pin_cpus.empty()) {
      const int cpu = options_.pin_cpus[index % options_.pin_cpus.size()];
      if (Status pinned = pin_thread(workers_.back().native_handle(), cpu); !pinned.ok()) return pinned;
    }
  }
  return {};
}

void ThreadPool::stop() {
  stopping_.store(true, std::memory_order_seq_cst);
  epoch_.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(epoch_, INT_MAX);
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
}

Status ThreadPool::pin_caller() {
  if (options_.pin_cpus.empty()) return {};
  return pin_thread(pthread_self(), options_.pin_cpus.front());
}

// Is the calling thread inside a task of this pool? The owner is set only while a region is open, so an outside caller on an
// idle pool pays one load.
bool ThreadPool::inside_region(std::size_t* thread_index) const {
  const std::thread::id owner = region_owner_.load(std::memory_order_acquire);
  if (owner == std::thread::id{}) return false;
  const std::thread::id self = std::this_thread::get_id();
  if (owner == self) {
    *thread_index = 0;
    return true;
  }
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    if (workers_[i].get_id() == self) {
      *thread_index = i + 1;
      return true;
    }
  }
  return false;
}

void ThreadPool::run(std::size_t tasks, TaskFunction function, void* context) {
  if (tasks == 0) return;
  std::size_t thread_index = 0;
  if (inside_region(&thread_index)) {
    for (std::size_t task = 0; task < tasks; ++task) function(context, task, thread_index);
    return;
  }

  const std::lock_guard<std::mutex> one_region(region_mutex_);
  const ComputeFloatScope float_scope;
  region_owner_.store(std::this_thread::get_id(), std::memory_order_release);
  if (workers_.empty() || tasks == 1) {
    for (std::size_t task = 0; task < tasks; ++task) function(context, task, 0);
  } else {
    STERLING_CHECK(tasks <= std::numeric_limits<std::uint32_t>::max());
    function_ = function;
    context_ = context;
    tasks_ = tasks;
    unfinished_.store(static_cast<std::uint32_t>(tasks), std::memory_order_relaxed);
    untaken_.store(static_cast<std::uint32_t>(tasks), std::memory_order_release);
    // Sequentially consistent on both sides: either this thread sees the sleeper or the sleeper sees the new epoch.
    epoch_.fetch_add(1, std::memory_order_seq_cst);
    if (const std::uint32_t asleep = parked_.load(std::memory_order_seq_cst); asleep != 0) {
      futex_wake(epoch_, static_cast<int>(std::min<std::size_t>(asleep, tasks - 1)));
    }
    finish(drain(0));
    await_completion();
  }
  region_owner_.store(std::thread::id{}, std::memory_order_release);
}

// Takes and runs tasks until none is left; returns how many it ran. They are reported together by finish(): the region can't
// close before, so the counter is touched once per thread and not once per task.
std::size_t ThreadPool::drain(std::size_t thread_index) {
  std::size_t done = 0;
  std::uint32_t left = untaken_.load(std::memory_order_relaxed);
  while (left != 0) {
    if (!untaken_.compare_exchange_weak(left, left - 1, std::memory_order_acquire, std::memory_order_relaxed)) continue;
    function_(context_, tasks_ - left, thread_index);
    ++done;
    left = untaken_.load(std::memory_order_relaxed);
  }
  return done;
}

void ThreadPool::finish(std::size_t done) {
  if (done == 0) return;
  const auto count = static_cast<std::uint32_t>(done);
  const bool last = unfinished_.fetch_sub(count, std::memory_order_seq_cst) == count;
  if (last && caller_parked_.load(std::memory_order_seq_cst)) futex_wake(unfinished_, 1);
}

void ThreadPool::await_completion() {
  const auto complete = [this] { return unfinished_.load(std::memory_order_acquire) == 0; };
  if (spin_until(options_.spin, complete)) return;
  caller_parked_.store(true, std::memory_order_seq_cst);
  for (std::uint32_t left = unfinished_.load(std::memory_order_seq_cst); left != 0;
       left = unfinished_.load(std::memory_order_seq_cst)) {
    futex_wait(unfinished_, left);
  }
  caller_parked_.store(false, std::memory_order_relaxed);
}

// Waits until epoch_ differs from `seen`; returns the new value.
std::uint32_t ThreadPool::await_epoch(std::uint32_t seen) {
  std::uint32_t now = seen;
  const auto changed = [&] { return (now = epoch_.load(std::memory_order_acquire)) != seen; };
  if (spin_until(options_.spin, changed)) return now;
  parked_.fetch_add(1, std::memory_order_seq_cst);
  while ((now = epoch_.load(std::memory_order_seq_cst)) == seen) futex_wait(epoch_, seen);
  parked_.fetch_sub(1, std::memory_order_relaxed);
  return now;
}

void ThreadPool::worker_main(std::size_t thread_index) {
  write_float_state(kComputeFloatState);
  std::uint32_t seen = 0;
  for (;;) {
    seen = await_epoch(seen);
    if (stopping_.load(std::memory_order_acquire)) return;
    finish(drain(thread_index));
  }
}

}  // namespace sterling::platform
