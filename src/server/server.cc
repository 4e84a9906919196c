#include "server/server.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <fmt/format.h>

#include "server/context.h"
#include "server/listener.h"

namespace sterling::server {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

// After the last answer was cut off, connections get this long to take leave.
constexpr std::chrono::seconds kLeaveTime{5};

}  // namespace

struct Server::Impl {
  Impl(serving::Service& service, ServerOptions o)
      : context(service, std::move(o)), io(context.options.io_threads), listener(io, context), tick(io) {}

  void run();
  void tick_on();
  void wait_for_connections();
  void end_everything();

  // Destroyed in reverse: what handlers use outlives the io_context that may still hold some.
  Context context;
  asio::io_context io;
  asio::executor_work_guard<asio::io_context::executor_type> guard{io.get_executor()};
  Listener listener;
  asio::steady_timer tick;
  std::vector<std::thread> threads;
  std::string address;

  std::mutex stop_mutex;
  std::condition_variable stop_done;
  enum class Stop { kNo, kRunning, kDone } stop_state = Stop::kNo;  // guarded by stop_mutex
};

void Server::Impl::run() {
  for (;;) {
    try {
      io.run();
      return;
    } catch (const std::exception& e) {
      context.log(LogLevel::kError, fmt::format("a handler ended by an exception: {}", e.what()));
    }
  }
}

void Server::Impl::tick_on() {
  context.lifecycle.note_engine(context.service.engine_idle(), context.service.engine_stats().steps,
                                std::chrono::steady_clock::now());
  context.metrics.set_connections(context.connections);
  tick.expires_after(std::chrono::seconds(1));
  tick.async_wait([this](error_code error) {
    if (!error && !context.stopping) tick_on();
  });
}

void Server::Impl::wait_for_connections() {
  const auto deadline = std::chrono::steady_clock::now() + kLeaveTime;
  while (context.connections > 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

void Server::Impl::end_everything() {
  context.stopping = true;
  listener.close();
  asio::post(io, [this] { tick.cancel(); });
  listener.abort_connections();
  wait_for_connections();
  guard.reset();
  io.stop();
  for (std::thread& t : threads) t.join();
  threads.clear();
  listener.close_now();
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() {
  stop(std::chrono::milliseconds(0));
}

Expected<std::unique_ptr<Server>> Server::start(serving::Service& service, ServerOptions options) {
  try {
    const std::string address = options.address;
    const std::uint16_t port = options.port;
    options.io_threads = std::max(1, options.io_threads);
    auto impl = std::make_unique<Impl>(service, std::move(options));
    if (Status status = impl->listener.open(address, port); !status) return status.error();
    const auto& endpoint = impl->listener.endpoint();
    const std::string ip = endpoint.address().to_string();
    impl->address = fmt::format(fmt::runtime(endpoint.address().is_v6() ? "[{}]:{}" : "{}:{}"), ip, endpoint.port());
    impl->tick_on();
    impl->listener.begin();
    for (std::int32_t i = 0; i < impl->context.options.io_threads; ++i) {
      impl->threads.emplace_back([raw = impl.get()] { raw->run(); });
    }
    return std::unique_ptr<Server>(new Server(std::move(impl)));
  } catch (const std::exception& e) {
    return make_error(ErrorCode::kIo, fmt::format("the server cannot start: {}", e.what()));
  }
}

std::uint16_t Server::port() const {
  return impl_->listener.endpoint().port();
}
const std::string& Server::address() const {
  return impl_->address;
}

void Server::set_ready(bool ready, std::string reason) {
  impl_->context.lifecycle.set_ready(ready, std::move(reason));
}

std::size_t Server::stop(std::chrono::milliseconds drain) {
  Impl& m = *impl_;
  const auto deadline = std::chrono::steady_clock::now() + drain;
  {
    std::unique_lock lock(m.stop_mutex);
    if (m.stop_state != Impl::Stop::kNo) {
      m.context.lifecycle.shorten_wait(deadline);
      m.stop_done.wait(lock, [&] { return m.stop_state == Impl::Stop::kDone; });
      return m.context.cut_off;
    }
    m.stop_state = Impl::Stop::kRunning;
  }
  m.context.lifecycle.begin_drain();
  m.context.service.drain_engine();
  m.context.lifecycle.wait_for_work(deadline);
  m.end_everything();
  {
    const std::lock_guard lock(m.stop_mutex);
    m.stop_state = Impl::Stop::kDone;
  }
  m.stop_done.notify_all();
  return m.context.cut_off;
}

}  // namespace sterling::server
