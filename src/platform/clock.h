// Time as an argument: whoever measures or waits takes a Clock, so that tests can move it by hand.
#pragma once

#include <atomic>
#include <chrono>

namespace sterling::platform {

// Monotonic time since an arbitrary start. Implementations are thread-safe.
class Clock {
 public:
  using Duration = std::chrono::nanoseconds;

  virtual ~Clock() = default;
  virtual Duration now() const = 0;

  double seconds() const { return std::chrono::duration<double>(now()).count(); }

 protected:
  Clock() = default;
  Clock(const Clock&) = default;
  Clock& operator=(const Clock&) = default;
};

// The system's monotonic clock.
class SteadyClock final : public Clock {
 public:
  Duration now() const override { return std::chrono::steady_clock::now().time_since_epoch(); }
};

// Stands still until it is told to go on.
class ManualClock final : public Clock {
 public:
  Duration now() const override { return Duration(now_.load(std::memory_order_acquire)); }
  void advance(Duration by) { now_.fetch_add(by.count(), std::memory_order_acq_rel); }

 private:
  std::atomic<Duration::rep> now_{0};
};

}  // namespace sterling::platform
