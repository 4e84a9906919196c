#include "server/wakeup.h"

#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace sterling::server {

void Wakeup::notify() {
  const std::lock_guard lock(mutex_);
  if (!executor_ || posted_) return;
  posted_ = true;
  // Under the lock: while attached the I/O context lives.
  boost::asio::post(executor_, [self = shared_from_this()] { self->arrived(); });
}

void Wakeup::detach() {
  hook_ = nullptr;
  timer_.reset();
  const std::lock_guard lock(mutex_);
  executor_ = {};
}

void Wakeup::arrived() {
  {
    const std::lock_guard lock(mutex_);
    posted_ = false;
  }
  noticed_ = true;
  if (hook_) hook_();
  if (timer_) timer_->cancel();
}

boost::asio::awaitable<void> Wakeup::wait_until(std::chrono::steady_clock::time_point deadline) {
  if (!noticed_) {
    timer_->expires_at(deadline);
    boost::system::error_code ignored;
    co_await timer_->async_wait(boost::asio::redirect_error(boost::asio::use_awaitable, ignored));
  }
  noticed_ = false;
}

}  // namespace sterling::server
