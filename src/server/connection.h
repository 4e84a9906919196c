// One client connection: reads requests, hands them to routes, writes responses, watches for the client's leaving.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>

#include "server/context.h"
#include "server/http_message.h"
#include "server/wakeup.h"

namespace sterling::server {

struct Route;

// Everything but abort() runs on the socket's strand. Requests that arrive while one is being answered (pipelining) wait in the
// buffer: answers keep the order of requests.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(boost::asio::ip::tcp::socket socket, Context& context);

  // From the first request to the close.
  boost::asio::awaitable<void> serve();

  // The server stops: idle connections close, answers under way are told by context.stopping and their Wakeup. Any thread.
  void abort();

  // --- for handlers
  boost::asio::any_io_executor executor() { return socket_.get_executor(); }
  // False: the client took nothing for write_timeout, or is gone.
  boost::asio::awaitable<bool> write(std::string_view bytes);

  // While a handler computes, incoming bytes and closes are looked at; `wakeup` is told of a change.
  void watch_client(std::shared_ptr<Wakeup> wakeup);
  void unwatch_client();
  // The connection broke.
  bool client_gone() const { return gone_; }
  // The client will send nothing more. It may still read the answer, or have left: only a write can tell.
  bool client_finished_sending() const { return finished_sending_; }

 private:
  enum class Read { kRequest, kRefused, kClosed };

  boost::asio::awaitable<Read> read_request(Request& request, const Route*& route, Response& refusal);
  boost::asio::awaitable<bool> wait_for_bytes();
  boost::asio::awaitable<bool> respond(const Request& request, const Route* route, Response response);
  boost::asio::awaitable<void> discard_and_close();

  void arm(std::chrono::milliseconds after, void (Connection::*on_expiry)());
  void disarm();
  void stop_receiving();
  void close();
  void wait_readable();
  void on_readable();

  Context& context_;
  boost::asio::ip::tcp::socket socket_;
  boost::beast::flat_buffer buffer_;
  boost::asio::steady_timer timer_;
  std::uint64_t timer_epoch_ = 0;  // an expiry that lost the race against disarm() knows it
  bool expired_ = false;
  bool gone_ = false;
  bool finished_sending_ = false;
  bool readable_pending_ = false;
  std::shared_ptr<Wakeup> watcher_;
};

}  // namespace sterling::server
