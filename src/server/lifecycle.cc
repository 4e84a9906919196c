#include "server/lifecycle.h"

#include <algorithm>
#include <utility>

namespace sterling::server {

void Lifecycle::set_ready(bool ready, std::string reason) {
  const std::lock_guard lock(mutex_);
  ready_ = ready;
  reason_ = std::move(reason);
}

Lifecycle::Readiness Lifecycle::readiness() const {
  const std::lock_guard lock(mutex_);
  Readiness out{ready_ && !draining_, draining_, reason_};
  if (draining_) out.reason = "draining: the server is about to stop";
  return out;
}

bool Lifecycle::begin_work() {
  const std::lock_guard lock(mutex_);
  if (draining_) return false;
  ++work_;
  return true;
}

void Lifecycle::end_work() {
  {
    const std::lock_guard lock(mutex_);
    --work_;
  }
  changed_.notify_all();
}

std::size_t Lifecycle::work() const {
  const std::lock_guard lock(mutex_);
  return work_;
}

void Lifecycle::wait_for_work(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  wait_deadline_ = std::min(wait_deadline_, deadline);
  while (work_ > 0 && std::chrono::steady_clock::now() < wait_deadline_) {
    const auto until = wait_deadline_;  // a copy: wait_until reads it unlocked
    changed_.wait_until(lock, until);
  }
}

void Lifecycle::shorten_wait(std::chrono::steady_clock::time_point deadline) {
  {
    const std::lock_guard lock(mutex_);
    wait_deadline_ = std::min(wait_deadline_, deadline);
  }
  changed_.notify_all();
}

void Lifecycle::note_engine(bool idle, std::uint64_t steps, std::chrono::steady_clock::time_point now) {
  const std::lock_guard lock(mutex_);
  if (idle || engine_idle_ || steps != engine_steps_) engine_moved_ = now;
  engine_idle_ = idle;
  engine_steps_ = steps;
}

std::chrono::milliseconds Lifecycle::engine_stalled(std::chrono::steady_clock::time_point now) const {
  const std::lock_guard lock(mutex_);
  if (engine_idle_) return std::chrono::milliseconds(0);
  return std::chrono::duration_cast<std::chrono::milliseconds>(now - engine_moved_);
}

}  // namespace sterling::server
