// Lets a coroutine of one connection sleep until another thread, or its own strand, has news.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>

namespace sterling::server {

// Whoever calls notify() may outlive the server (an engine's sink, say): detach() lets go of everything that belongs to the I/O
// context, and notify() then does nothing. Everything but notify() runs on the executor's strand.
class Wakeup : public std::enable_shared_from_this<Wakeup> {
 public:
  explicit Wakeup(const boost::asio::any_io_executor& executor) : executor_(executor) { timer_.emplace(executor); }

  void notify();
  void detach();
  // Also on the strand, with each notice, whether anybody waits or not.
  void on_notice(std::function<void()> hook) { hook_ = std::move(hook); }
  // Returns at a notice (also one that came before) or at the time given.
  boost::asio::awaitable<void> wait_until(std::chrono::steady_clock::time_point deadline);

 private:
  void arrived();

  std::mutex mutex_;
  boost::asio::any_io_executor executor_;  // guarded by mutex_; empty once detached
  bool posted_ = false;                    // guarded by mutex_
  std::optional<boost::asio::steady_timer> timer_;
  std::function<void()> hook_;
  bool noticed_ = false;
};

// Detaches at the end of a scope.
class WakeupScope {
 public:
  explicit WakeupScope(std::shared_ptr<Wakeup> wakeup) : wakeup_(std::move(wakeup)) {}
  ~WakeupScope() { wakeup_->detach(); }
  WakeupScope(const WakeupScope&) = delete;
  WakeupScope& operator=(const WakeupScope&) = delete;

 private:
  std::shared_ptr<Wakeup> wakeup_;
};

}  // namespace sterling::server
