#include "server/request_reader.h"

#include <utility>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/http.hpp>
#include <fmt/format.h>

namespace sterling::server {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

Method method_of(http::verb verb) {
  switch (verb) {
    case http::verb::get: return Method::kGet;
    case http::verb::head: return Method::kHead;
    case http::verb::post: return Method::kPost;
    case http::verb::options: return Method::kOptions;
    default: return Method::kOther;
  }
}

std::string text(boost::beast::string_view view) {
  return std::string(view.data(), view.size());
}

}  // namespace

struct RequestReader::Impl {
  asio::ip::tcp::socket& socket;
  boost::beast::flat_buffer& buffer;
  const ServerOptions& options;
  http::request_parser<http::string_body> parser;
  std::string detail;

  Result classify(const error_code& error) {
    if (!error) return Result::kDone;
    if (error == http::error::header_limit || error == http::error::buffer_overflow) return Result::kHeadTooLarge;
    if (error == http::error::body_limit) return Result::kBodyTooLarge;
    if (error == http::error::end_of_stream || error == http::error::partial_message) return Result::kClosed;
    static const error_code kAnyHttp = http::error::bad_method;
    if (error.category() != kAnyHttp.category()) return Result::kClosed;
    detail = error.message();
    return Result::kMalformed;
  }
};

RequestReader::RequestReader(asio::ip::tcp::socket& socket, boost::beast::flat_buffer& buffer,
                             const ServerOptions& options)
    : impl_(new Impl{socket, buffer, options, {}, {}}) {
  impl_->parser.header_limit(static_cast<std::uint32_t>(options.max_header_bytes));
  impl_->parser.body_limit(options.max_body_bytes);
}

RequestReader::~RequestReader() = default;

asio::awaitable<RequestReader::Result> RequestReader::read_head(Request& request) {
  Impl& m = *impl_;
  error_code error;
  co_await http::async_read_header(m.socket, m.buffer, m.parser, asio::redirect_error(asio::use_awaitable, error));
  const auto& head = m.parser.get();
  request.http_1_0 = head.version() == 10;
  request.keep_alive = m.parser.keep_alive();
  if (const Result result = m.classify(error); result != Result::kDone) co_return result;
  request.method = method_of(head.method());
  request.path = path_of(std::string_view(head.target().data(), head.target().size()));
  request.authorization = text(head[http::field::authorization]);
  request.origin = text(head[http::field::origin]);
  request.host = text(head[http::field::host]);
  if (head.version() != 10 && head.version() != 11) {
    m.detail = "accepted: HTTP/1.1 and HTTP/1.0";
    co_return Result::kMalformed;
  }
  if (head.version() == 11 && head.count(http::field::host) != 1) {
    m.detail = "HTTP/1.1 asks for one Host header";
    co_return Result::kMalformed;
  }
  co_return Result::kDone;
}

asio::awaitable<RequestReader::Result> RequestReader::read_body(Request& request) {
  Impl& m = *impl_;
  error_code error;
  if (!m.parser.is_done()) {
    co_await http::async_read(m.socket, m.buffer, m.parser, asio::redirect_error(asio::use_awaitable, error));
  }
  if (!error) request.body = std::move(m.parser.get().body());
  co_return m.classify(error);
}

bool RequestReader::has_body() const {
  return !impl_->parser.is_done();
}

bool RequestReader::wants_continue() const {
  return !impl_->parser.is_done() && impl_->parser.get().version() == 11 &&
         boost::beast::iequals(impl_->parser.get()[http::field::expect], "100-continue");
}

Response RequestReader::refusal(Result result) const {
  switch (result) {
    case Result::kHeadTooLarge:
      return error_response(
          431, "invalid_request_error",
          fmt::format("the request's header is too large; accepted: at most {} bytes", impl_->options.max_header_bytes),
          "header_too_large");
    case Result::kBodyTooLarge:
      return error_response(
          413, "invalid_request_error",
          fmt::format("the request's body is too large; accepted: at most {} bytes", impl_->options.max_body_bytes),
          "body_too_large");
    default:
      return error_response(400, "invalid_request_error", fmt::format("this is not an HTTP request: {}", impl_->detail),
                            "bad_request");
  }
}

}  // namespace sterling::server
