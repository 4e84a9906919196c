// What every connection of one server shares.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "server/lifecycle.h"
#include "server/metrics.h"
#include "server/server.h"
#include "serving/service.h"

namespace sterling::server {

struct Context {
  Context(serving::Service& s, ServerOptions o);

  // "chatcmpl-" and 32 hexadecimal digits that no other response of this process has.
  std::string new_id(std::string_view prefix);
  void log(LogLevel level, std::string_view message) const {
    if (options.log) options.log(level, message);
  }

  serving::Service& service;
  const ServerOptions options;
  const std::int64_t started_at;  // seconds since 1970
  Lifecycle lifecycle;
  Metrics metrics;
  std::atomic<std::size_t> connections{0};
  std::atomic<std::size_t> cut_off{0};  // generations ended by the server's stop
  std::atomic<bool> stopping{false};    // the drain is over: end everything now

 private:
  const std::uint64_t id_salt_;
  std::atomic<std::uint64_t> next_id_{0};
};

}  // namespace sterling::server
