// The HTTP server: sockets, routes, limits, keys, metrics and lifecycle around a serving::Service.
//
// One thread carries every connection (C++20 coroutines over Asio); generation happens elsewhere and only wakes it. Nothing here
// reads the environment, prints or handles signals: cli/ does.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/status.h"
#include "server/precision_facts.h"
#include "serving/service.h"

namespace sterling::server {

struct ServerOptions {
  std::string address = "127.0.0.1";  // an IP address (v4 or v6) or "localhost"
  std::uint16_t port = 8000;          // 0: the system picks one, see Server::port()
  std::vector<std::string> api_keys;  // empty: open to whoever reaches the port
  std::string version;                // for /version and the build metric
  std::string system_fingerprint;     // empty: null in responses
  std::int32_t io_threads = 1;

  // --- limits
  std::size_t max_body_bytes = std::size_t{32} << 20;
  std::size_t max_header_bytes = std::size_t{32} << 10;
  std::size_t max_connections = 1024;  // the next gets 503 with Retry-After

  // --- timeouts
  std::chrono::milliseconds header_timeout{30'000};  // from a request's first byte to the end of its header
  std::chrono::milliseconds body_timeout{60'000};    // for the whole body
  std::chrono::milliseconds idle_timeout{75'000};    // between requests of one connection
  std::chrono::milliseconds write_timeout{60'000};   // a client that takes nothing for so long is dropped
  std::chrono::milliseconds ping_interval{15'000};   // SSE comments while a stream has nothing to say
  std::chrono::milliseconds request_timeout{0};      // from arrival to the last token; 0: none
  std::chrono::milliseconds stall_timeout{300'000};  // busy engine without a step for so long: /health says 503

  // --- documents of the caller, each one JSON value; called on the I/O thread, must be quick. Empty: the route answers 404.
  std::function<std::string()> server_info;  // GET /server_info
  std::function<std::string()> precision;    // GET /v1/precision
  // POST /v1/precision/prove: proves again and answers with status and document. Runs on one of the service's threads and may take seconds.
  std::function<std::pair<int, std::string>()> prove;
  PrecisionFacts facts;  // for the X-Sterling-Manifest header, /ready and /metrics

  LogSink log;
};

// Thread-safe.
class Server {
 public:
  // Listens and serves at once; not ready until set_ready(true). Errors name address and port: kInvalidArgument (not an
  // address), kPermission, kResourceExhausted (the port is taken), kIo. `service` must outlive the server.
  static Expected<std::unique_ptr<Server>> start(serving::Service& service, ServerOptions options);

  ~Server();  // stop(0)
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  std::uint16_t port() const;          // the real one
  const std::string& address() const;  // "127.0.0.1:8000", "[::1]:8000"

  // What GET /ready says; `reason` is shown while false ("loading weights").
  void set_ready(bool ready, std::string reason = {});

  // Refuses new work (503, /ready says draining), lets running requests finish for `drain`, cancels the rest, closes every
  // connection and returns. A second call from another thread shortens the wait of the first. Returns how many requests were cut off.
  std::size_t stop(std::chrono::milliseconds drain);

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sterling::server
