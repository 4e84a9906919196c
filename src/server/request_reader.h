// Reads one HTTP request from a socket, within the limits.
#pragma once

#include <memory>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>

#include "server/http_message.h"
#include "server/server.h"

namespace sterling::server {

class RequestReader {
 public:
  enum class Result { kDone, kClosed, kMalformed, kHeadTooLarge, kBodyTooLarge };

  // Bytes beyond the request stay in `buffer`.
  RequestReader(boost::asio::ip::tcp::socket& socket, boost::beast::flat_buffer& buffer, const ServerOptions& options);
  ~RequestReader();
  RequestReader(const RequestReader&) = delete;
  RequestReader& operator=(const RequestReader&) = delete;

  boost::asio::awaitable<Result> read_head(Request& request);
  boost::asio::awaitable<Result> read_body(Request& request);

  // After read_head().
  bool has_body() const;
  bool wants_continue() const;

  Response refusal(Result result) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sterling::server
