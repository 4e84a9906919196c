#include "server/listener.h"

#include <chrono>
#include <utility>
#include <vector>

#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fmt/format.h>

namespace sterling::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// Polite refusals under way; beyond it a connection is closed without a word.
constexpr std::size_t kMostTurningAway = 64;

Error listen_error(const error_code& error, const std::string& address, std::uint16_t port) {
  if (error == asio::error::address_in_use) {
    return make_error(
        ErrorCode::kResourceExhausted,
        fmt::format("port {} on {} is in use by another process; accepted: another port, or 0 for a free one", port,
                    address),
        "port");
  }
  if (error == asio::error::access_denied) {
    return make_error(
        ErrorCode::kPermission,
        fmt::format("port {} on {} may not be opened by this user; accepted: a port above 1023", port, address),
        "port");
  }
  if (error == boost::system::errc::address_not_available) {
    return make_error(ErrorCode::kInvalidArgument, fmt::format("{} is not an address of this machine", address),
                      "address");
  }
  return make_error(ErrorCode::kIo, fmt::format("cannot listen on {} port {}: {}", address, port, error.message()),
                    "address");
}

}  // namespace

Listener::Listener(asio::io_context& io, Context& context)
    : io_(io), context_(context), acceptor_(asio::make_strand(io)) {}

Status Listener::open(const std::string& address, std::uint16_t port) {
  error_code error;
  const asio::ip::address ip = asio::ip::make_address(address == "localhost" ? "127.0.0.1" : address, error);
  if (error) {
    return make_error(
        ErrorCode::kInvalidArgument,
        fmt::format("\"{}\" is not an address to listen on; accepted: an IPv4 or IPv6 address, or localhost", address),
        "address");
  }
  const tcp::endpoint wanted(ip, port);
  acceptor_.open(wanted.protocol(), error);
  // After a restart the old connections may still linger; two living listeners cannot share a port with this.
  if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor_.bind(wanted, error);
  if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (!error) endpoint_ = acceptor_.local_endpoint(error);
  if (error) return listen_error(error, address, port);
  if (!ip.is_loopback() && context_.options.api_keys.empty()) {
    context_.log(LogLevel::kWarning,
                 fmt::format("listening on {} without an API key: everybody who reaches this port can use "
                             "the server",
                             address));
  }
  return {};
}

void Listener::begin() {
  asio::co_spawn(acceptor_.get_executor(), accept_all(), asio::detached);
}

asio::awaitable<void> Listener::accept_all() {
  asio::steady_timer pause(acceptor_.get_executor());
  while (acceptor_.is_open()) {
    error_code error;
    tcp::socket socket(asio::make_strand(io_));
    co_await acceptor_.async_accept(socket, asio::redirect_error(asio::use_awaitable, error));
    if (error == asio::error::operation_aborted) co_return;
    if (error) {
      // Out of file descriptors, most likely: closing connections mends it, trying at once does not.
      context_.log(LogLevel::kWarning, fmt::format("cannot accept a connection: {}", error.message()));
      pause.expires_after(std::chrono::milliseconds(100));
      co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, error));
      continue;
    }
    const auto strand = socket.get_executor();
    if (context_.connections < context_.options.max_connections) {
      ++context_.connections;
      asio::co_spawn(strand, serve(std::move(socket)), asio::detached);
    } else if (turning_away_ < kMostTurningAway) {
      ++turning_away_;
      asio::co_spawn(strand, turn_away(std::move(socket)), asio::detached);
    }
  }
}

asio::awaitable<void> Listener::serve(tcp::socket socket) {
  const auto connection = std::make_shared<Connection>(std::move(socket), context_);
  {
    const std::lock_guard lock(mutex_);
    connections_[connection.get()] = connection;
  }
  try {
    co_await connection->serve();
  } catch (const std::exception& e) {
    context_.log(LogLevel::kError, fmt::format("a connection ended by an exception: {}", e.what()));
  }
  const std::lock_guard lock(mutex_);
  connections_.erase(connection.get());
  --context_.connections;
}

asio::awaitable<void> Listener::turn_away(tcp::socket socket) {
  Response response =
      error_response(503, "service_unavailable_error",
                     fmt::format("all {} connections of this server are in use", context_.options.max_connections),
                     "too_many_connections");
  ResponseHeadInfo info;
  info.status = response.status;
  info.content_type = response.content_type;
  info.content_length = response.body.size();
  info.close = true;
  const std::string bytes = response_head(info, {{"Retry-After", "1"}}) + response.body;
  error_code error;
  socket.non_blocking(true, error);
  socket.write_some(asio::buffer(bytes), error);
  socket.shutdown(tcp::socket::shutdown_send, error);
  // Closing with unread bytes would reset the connection under the answer. Leave the client a moment to read it.
  asio::steady_timer timer(socket.get_executor(), std::chrono::milliseconds(500));
  co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, error));
  std::string scrap(4096, '\0');
  while (socket.read_some(asio::buffer(scrap), error) > 0) {
  }
  --turning_away_;
}

void Listener::close() {
  asio::post(acceptor_.get_executor(), [this] {
    error_code ignored;
    acceptor_.close(ignored);
  });
}

void Listener::close_now() {
  error_code ignored;
  acceptor_.close(ignored);
}

void Listener::abort_connections() {
  std::vector<std::shared_ptr<Connection>> all;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, weak] : connections_) {
      if (auto connection = weak.lock()) all.push_back(std::move(connection));
    }
  }
  for (const auto& connection : all) connection->abort();
}

}  // namespace sterling::server
