// The compute pool: N threads that run one parallel region after another with little delay between them. A forward pass has
// several hundred regions per step, so a region costs about a microsecond when the workers are awake: they spin for
// `Options::spin` after each region before they park on a futex, and the caller works along as thread 0.
//
// Work is taken dynamically, one task index at a time, from one atomic counter. Results must not depend on who takes which
// task: in Sterling each output element belongs to exactly one task (docs/numerics.md), so they don't.
//
// Every task runs in the compute float environment (float_env.h), on the workers and on the caller.
//
// Threads: parallel() may be called from any thread; calls from several threads at once are served one after the other. A
// call from inside a task runs inline on that thread, under its own thread index. The pool must outlive its calls.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/status.h"

namespace sterling::platform {

class ThreadPool {
 public:
  struct Options {
    // Threads that compute, the caller included; at least 1. With 1 everything runs inline and no thread is made.
    std::size_t threads = 1;
    // How long an idle worker (or a caller that waits for the last task) spins before it parks. Taken as 0 when there are more
    // threads than the process has CPUs: then the spinner would hold up the thread it waits for.
    std::chrono::microseconds spin{50};
    // CPU numbers to pin to: worker i to pin_cpus[i % size], thread 0 by pin_caller(). Empty: the kernel places threads.
    std::vector<int> pin_cpus;
  };

  // kInvalidArgument: threads is 0 or above kMaxThreads. kResourceExhausted: a thread could not be started.
  // kPermission: a pin was refused.
  static Expected<std::unique_ptr<ThreadPool>> create(Options options);

  static constexpr std::size_t kMaxThreads = 4096;

  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  std::size_t threads() const { return options_.threads; }

  // Calls fn(task_index, thread_index) once for every task_index in [0, tasks), thread_index in [0, threads()); at most one
  // call per thread index runs at a time. Returns when all have returned; what they wrote is then visible to the caller. No
  // allocation. fn must not throw (it would end the process) and must not change the float environment.
  template <typename Fn>
  void parallel(std::size_t tasks, Fn&& fn) {
    using Callable = std::remove_reference_t<Fn>;
    run(
        tasks,
        [](void* context, std::size_t task, std::size_t thread) noexcept {
          (*static_cast<Callable*>(context))(task, thread);
        },
        const_cast<std::remove_const_t<Callable>*>(std::addressof(fn)));
  }

  // Pins the calling thread to pin_cpus[0]; for the thread that will call parallel() from now on. Nothing without pin_cpus.
  Status pin_caller();

 private:
  using TaskFunction = void (*)(void* context, std::size_t task, std::size_t thread) noexcept;

  explicit ThreadPool(Options options);
  Status start();
  void stop();

  void run(std::size_t tasks, TaskFunction function, void* context);
  bool inside_region(std::size_t* thread_index) const;
  void worker_main(std::size_t thread_index);
  std::size_t drain(std::size_t thread_index);
  std::uint32_t await_epoch(std::uint32_t seen);
  void finish(std::size_t done);
  void await_completion();

  Options options_;
  std::vector<std::thread> workers_;  // workers_[i] is thread i + 1

  std::mutex region_mutex_;  // one region at a time
  std::atomic<std::thread::id> region_owner_{};

  // The region. Written by its caller while no task is untaken or unfinished; read by others only after they took a task.
  TaskFunction function_ = nullptr;
  void* context_ = nullptr;
  std::size_t tasks_ = 0;

  alignas(64) std::atomic<std::uint32_t> untaken_{0};     // tasks nobody has taken: the next is tasks_ - untaken_
  alignas(64) std::atomic<std::uint32_t> unfinished_{0};  // tasks not yet reported done
  std::atomic<bool> caller_parked_{false};
  alignas(64) std::atomic<std::uint32_t> epoch_{0};  // grows with every region; the futex idle workers park on
  alignas(64) std::atomic<std::uint32_t> parked_{0};
  std::atomic<bool> stopping_{false};
};

}  // namespace sterling::platform
