// Ready, draining, stopped; how much work is under way; whether the engine moves. Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

namespace sterling::server {

class Lifecycle {
 public:
  struct Readiness {
    bool ready = false;
    bool draining = false;
    std::string reason;
  };

  void set_ready(bool ready, std::string reason);
  Readiness readiness() const;
  void begin_drain() { draining_ = true; }
  bool draining() const { return draining_.load(); }

  // One generation. begin_work() is false while draining; end_work() only after true.
  bool begin_work();
  void end_work();
  std::size_t work() const;
  // Waits for work() to be 0. `deadline` may be moved forward by shorten().
  void wait_for_work(std::chrono::steady_clock::time_point deadline);
  void shorten_wait(std::chrono::steady_clock::time_point deadline);

  // Called once a second with the engine's counters.
  void note_engine(bool idle, std::uint64_t steps, std::chrono::steady_clock::time_point now);
  // How long a busy engine has made no step; zero when it moves or has nothing to do.
  std::chrono::milliseconds engine_stalled(std::chrono::steady_clock::time_point now) const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> draining_{false};
  bool ready_ = false;
  std::string reason_ = "starting";
  std::size_t work_ = 0;
  std::chrono::steady_clock::time_point wait_deadline_ = std::chrono::steady_clock::time_point::max();
  bool engine_idle_ = true;
  std::uint64_t engine_steps_ = 0;
  std::chrono::steady_clock::time_point engine_moved_{};
};

}  // namespace sterling::server
