// The listening socket and the connections that came through it.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "base/status.h"
#include "server/connection.h"
#include "server/context.h"

namespace sterling::server {

class Listener {
 public:
  // `io` and `context` must outlive it, and it must outlive every handler of `io`.
  Listener(boost::asio::io_context& io, Context& context);

  Status open(const std::string& address, std::uint16_t port);
  void begin();  // accepts from now on

  const boost::asio::ip::tcp::endpoint& endpoint() const { return endpoint_; }

  // Any thread. The listening socket itself is closed by close_now(), when no thread runs `io` any more.
  void close();
  void abort_connections();
  void close_now();

 private:
  boost::asio::awaitable<void> accept_all();
  boost::asio::awaitable<void> serve(boost::asio::ip::tcp::socket socket);
  boost::asio::awaitable<void> turn_away(boost::asio::ip::tcp::socket socket);

  boost::asio::io_context& io_;
  Context& context_;
  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::ip::tcp::endpoint endpoint_;
  std::atomic<std::size_t> turning_away_{0};
  std::mutex mutex_;
  std::unordered_map<Connection*, std::weak_ptr<Connection>> connections_;  // guarded by mutex_
};

}  // namespace sterling::server
