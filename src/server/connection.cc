#include "server/connection.h"

#include <algorithm>
#include <utility>

#include <boost/asio/bind_executor.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fmt/format.h>

#include "server/request_reader.h"
#include "server/routes.h"

namespace sterling::server {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

// While a request is being answered no more than this of the next ones is taken in.
constexpr std::size_t kReadAhead = std::size_t{64} << 10;
// A refused body is read and dropped for a while, lest the client see a reset instead of the refusal.
constexpr std::size_t kMostDiscarded = std::size_t{256} << 20;
constexpr std::chrono::milliseconds kDiscardTime{5'000};
constexpr std::chrono::milliseconds kAbortGrace{2'000};

}  // namespace

Connection::Connection(asio::ip::tcp::socket socket, Context& context)
    : context_(context), socket_(std::move(socket)), timer_(socket_.get_executor()) {}

asio::awaitable<void> Connection::serve() {
  error_code ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  socket_.set_option(asio::socket_base::keep_alive(true),
                     ignored);  // a client whose machine died is noticed, in the end
  socket_.non_blocking(true, ignored);
  for (bool open = true; open && !context_.stopping;) {
    Request request;
    const Route* route = nullptr;
    Response response;
    const Read read = co_await read_request(request, route, response);
    if (read == Read::kClosed) break;
    if (read == Read::kRequest) {
      if (route->async_handler != nullptr) {
        response = co_await route->async_handler(*this, context_, request);
      } else {
        response = route->handler(context_, request);
      }
    }
    const bool discard = read == Read::kRefused && response.close;
    open = co_await respond(request, route, std::move(response));
    if (discard && !gone_) co_await discard_and_close();
  }
  close();
}

asio::awaitable<Connection::Read> Connection::read_request(Request& request, const Route*& route, Response& refusal) {
  if (!co_await wait_for_bytes()) co_return Read::kClosed;
  RequestReader reader(socket_, buffer_, context_.options);
  arm(context_.options.header_timeout, &Connection::stop_receiving);
  RequestReader::Result result = co_await reader.read_head(request);
  disarm();
  if (result == RequestReader::Result::kDone) {
    route = find_route(context_, request, refusal);
    if (route == nullptr) {
      // A body that follows is of no use to anyone.
      refusal.close = reader.has_body();
      co_return Read::kRefused;
    }
    if (reader.wants_continue()) {
      if (!co_await write("HTTP/1.1 100 Continue\r\n\r\n")) co_return Read::kClosed;
    }
    arm(context_.options.body_timeout, &Connection::stop_receiving);
    result = co_await reader.read_body(request);
    disarm();
    if (result == RequestReader::Result::kDone) co_return Read::kRequest;
  }
  if (result == RequestReader::Result::kClosed && !expired_) co_return Read::kClosed;
  refusal = expired_
                ? error_response(408, "invalid_request_error", "the request took too long to arrive", "request_timeout")
                : reader.refusal(result);
  refusal.close = true;
  co_return Read::kRefused;
}

// Sleeps through the pause between two requests. False: the client left or waited too long.
asio::awaitable<bool> Connection::wait_for_bytes() {
  expired_ = false;
  if (buffer_.size() > 0) co_return true;
  if (gone_ || finished_sending_) co_return false;
  arm(context_.options.idle_timeout, &Connection::stop_receiving);
  error_code error;
  co_await socket_.async_wait(asio::ip::tcp::socket::wait_read, asio::redirect_error(asio::use_awaitable, error));
  disarm();
  co_return !error && !expired_;
}

asio::awaitable<bool> Connection::respond(const Request& request, const Route* route, Response response) {
  const bool head = request.method == Method::kHead;
  const bool close = response.close || !request.keep_alive || context_.lifecycle.draining();
  context_.metrics.count_response(route == nullptr ? "other" : route->path, response.status);
  if (context_.options.log) {
    context_.log(LogLevel::kDebug, fmt::format("{} {}: {}", head ? "HEAD" : "request",
                                               route == nullptr ? "other path" : route->path, response.status));
  }
  if (response.sent) co_return !close && !gone_;
  ResponseHeadInfo info;
  info.status = response.status;
  info.content_type = response.content_type;
  info.content_length = response.body.size();
  info.http_1_0 = request.http_1_0;
  info.close = close;
  const std::string& manifest = context_.options.facts.hash;
  if (!manifest.empty()) response.headers.emplace_back("X-Sterling-Manifest", manifest);
  std::string bytes = response_head(info, response.headers);
  if (!head) bytes += response.body;
  const bool written = co_await write(bytes);
  co_return written && !close;
}

asio::awaitable<bool> Connection::write(std::string_view bytes) {
  while (!bytes.empty()) {
    if (gone_) co_return false;
    arm(context_.options.write_timeout, &Connection::close);
    error_code error;
    const std::size_t written = co_await socket_.async_write_some(asio::buffer(bytes.data(), bytes.size()),
                                                                  asio::redirect_error(asio::use_awaitable, error));
    disarm();
    if (error) {
      gone_ = true;
      co_return false;
    }
    bytes.remove_prefix(written);
  }
  co_return true;
}

asio::awaitable<void> Connection::discard_and_close() {
  error_code error;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, error);
  buffer_.clear();
  std::string scrap(std::size_t{64} << 10, '\0');
  arm(kDiscardTime, &Connection::close);
  for (std::size_t total = 0; total < kMostDiscarded && !error;) {
    total += co_await socket_.async_read_some(asio::buffer(scrap.data(), scrap.size()),
                                              asio::redirect_error(asio::use_awaitable, error));
  }
  disarm();
}

void Connection::arm(std::chrono::milliseconds after, void (Connection::*on_expiry)()) {
  const std::uint64_t epoch = ++timer_epoch_;
  timer_.expires_after(after);
  timer_.async_wait([self = shared_from_this(), epoch, on_expiry](error_code error) {
    if (error || epoch != self->timer_epoch_) return;
    self->expired_ = true;
    (self.get()->*on_expiry)();
  });
}

void Connection::disarm() {
  ++timer_epoch_;
  timer_.cancel();
}

// Unlike a cancel this also ends the reads that a composed operation has yet to start, and leaves the way out open.
void Connection::stop_receiving() {
  error_code ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_receive, ignored);
}

void Connection::close() {
  gone_ = true;
  error_code ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
  socket_.close(ignored);
}

void Connection::abort() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    if (self->watcher_ == nullptr) return self->close();
    self->watcher_->notify();
    // The answer under way says why it ends, if its client still reads.
    auto timer = std::make_shared<asio::steady_timer>(self->socket_.get_executor(), kAbortGrace);
    timer->async_wait([self, timer](error_code) { self->close(); });
  });
}

void Connection::watch_client(std::shared_ptr<Wakeup> wakeup) {
  watcher_ = std::move(wakeup);
  if (!readable_pending_ && !finished_sending_) wait_readable();
}

void Connection::unwatch_client() {
  watcher_.reset();
}

void Connection::wait_readable() {
  readable_pending_ = true;
  socket_.async_wait(asio::ip::tcp::socket::wait_read, [self = shared_from_this()](error_code error) {
    self->readable_pending_ = false;
    if (!error && self->watcher_ != nullptr) self->on_readable();
  });
}

void Connection::on_readable() {
  if (buffer_.size() >= kReadAhead) return;  // the next request waits, and with it the sight of the client's leaving
  error_code error;
  const std::size_t size = socket_.read_some(buffer_.prepare(4096), error);
  buffer_.commit(size);
  if (!error || error == asio::error::would_block) return wait_readable();
  if (error == asio::error::eof) {
    finished_sending_ = true;
  } else {
    gone_ = true;
  }
  watcher_->notify();
}

}  // namespace sterling::server
