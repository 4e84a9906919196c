#include "cli/http_exchange.h"

#include <array>
#include <chrono>
#include <limits>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <fmt/format.h>

namespace sterling::cli {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;

constexpr auto kConnectTimeout = std::chrono::seconds(10);
constexpr auto kSlice = std::chrono::milliseconds(50);

class Exchange {
 public:
  Exchange(const HttpRequest& request, const HttpCallbacks& callbacks)
      : request_(request), callbacks_(callbacks), resolver_(context_), stream_(context_) {
    parser_.body_limit(
        std::numeric_limits<std::uint64_t>::max());  // a stream may run for days; its reader bounds what it keeps
  }

  Expected<HttpOutcome> run();

 private:
  enum class Wait { kDone, kInterrupted };

  // Runs the loop until the operation that was just started has called finish(); on an interrupt everything is closed.
  Wait wait();
  void finish(error_code error) {
    error_ = error;
    finished_ = true;
  }
  Error failure(std::string_view doing) const {
    return make_error(ErrorCode::kUnavailable,
                      fmt::format("{} {}:{}: {}", doing, request_.host, request_.port, error_.message()));
  }
  Expected<HttpOutcome> read_body();
  http::request<http::string_body> message() const;

  const HttpRequest& request_;
  const HttpCallbacks& callbacks_;
  asio::io_context context_;
  asio::ip::tcp::resolver resolver_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  http::response_parser<http::buffer_body> parser_;
  error_code error_;
  bool finished_ = false;
};

Exchange::Wait Exchange::wait() {
  while (!finished_) {
    if (context_.stopped()) context_.restart();
    context_.run_one_for(kSlice);
    if (finished_ || !callbacks_.interrupted || !callbacks_.interrupted()) continue;
    resolver_.cancel();
    stream_.close();
    while (!finished_) {  // the handler refers to this object: it must have run
      if (context_.stopped()) context_.restart();
      context_.run_one_for(kSlice);
    }
    return Wait::kInterrupted;
  }
  finished_ = false;
  return Wait::kDone;
}

http::request<http::string_body> Exchange::message() const {
  http::request<http::string_body> message(request_.json_body ? http::verb::post : http::verb::get, request_.target,
                                           11);
  const bool ipv6 = request_.host.find(':') != std::string::npos;
  message.set(http::field::host,
              fmt::format("{}{}{}:{}", ipv6 ? "[" : "", request_.host, ipv6 ? "]" : "", request_.port));
  message.set(http::field::user_agent, "sterling-chat");
  message.set(http::field::connection, "close");
  if (request_.bearer) message.set(http::field::authorization, "Bearer " + *request_.bearer);
  if (request_.json_body) {
    message.set(http::field::content_type, "application/json");
    message.body() = *request_.json_body;
  }
  message.prepare_payload();
  return message;
}

Expected<HttpOutcome> Exchange::read_body() {
  const int status = parser_.get().result_int();
  std::array<char, 16384> piece;
  while (!parser_.is_done()) {
    parser_.get().body().data = piece.data();
    parser_.get().body().size = piece.size();
    parser_.get().body().more = true;
    http::async_read_some(stream_, buffer_, parser_, [this](error_code error, std::size_t) { finish(error); });
    if (wait() == Wait::kInterrupted) return HttpOutcome{status, true};
    if (error_ && error_ != http::error::need_buffer) return failure("the connection broke to");
    const std::size_t count = piece.size() - parser_.get().body().size;
    if (count == 0) continue;
    if (Status taken = callbacks_.body(status, {piece.data(), count}); !taken) return taken.error();
  }
  return HttpOutcome{status, false};
}

Expected<HttpOutcome> Exchange::run() {
  asio::ip::tcp::resolver::results_type endpoints;
  resolver_.async_resolve(request_.host, request_.port, [&](error_code error, const auto& found) {
    endpoints = found;
    finish(error);
  });
  if (wait() == Wait::kInterrupted) return HttpOutcome{0, true};
  if (error_) return failure("cannot find");

  stream_.expires_after(kConnectTimeout);
  stream_.async_connect(endpoints, [this](error_code error, const auto&) { finish(error); });
  if (wait() == Wait::kInterrupted) return HttpOutcome{0, true};
  if (error_) return failure("cannot connect to");
  stream_.expires_never();  // a long prompt may take minutes before its first token

  const http::request<http::string_body> request = message();
  http::async_write(stream_, request, [this](error_code error, std::size_t) { finish(error); });
  if (wait() == Wait::kInterrupted) return HttpOutcome{0, true};
  if (error_) return failure("cannot send to");

  http::async_read_header(stream_, buffer_, parser_, [this](error_code error, std::size_t) { finish(error); });
  if (wait() == Wait::kInterrupted) return HttpOutcome{0, true};
  if (error_) return failure("no HTTP answer from");
  return read_body();
}

}  // namespace

Expected<HttpOutcome> exchange(const HttpRequest& request, const HttpCallbacks& callbacks) {
  try {
    return Exchange(request, callbacks).run();
  } catch (const std::exception& error) {
    return make_error(ErrorCode::kInternal, fmt::format("HTTP client: {}", error.what()));
  }
}

}  // namespace sterling::cli
