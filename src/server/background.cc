#include "server/background.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <utility>

namespace sterling::server {

boost::asio::awaitable<void> in_background(Connection& connection, Context& context, std::function<void()> work) {
  const auto wakeup = std::make_shared<Wakeup>(connection.executor());
  const WakeupScope scope(wakeup);
  const auto done = std::make_shared<std::atomic<bool>>(false);
  context.service.run_in_background([work = std::move(work), done, wakeup] {
    work();
    *done = true;
    wakeup->notify();
  });
  while (!*done) co_await wakeup->wait_until(std::chrono::steady_clock::now() + std::chrono::hours(1));
}

}  // namespace sterling::server
