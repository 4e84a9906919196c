// One HTTP/1.1 request over a new connection, its response body in pieces. Blocking; can be interrupted.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace sterling::cli {

struct HttpRequest {
  std::string host, port;
  std::string target;                    // "/v1/models"
  std::optional<std::string> json_body;  // POST with it, GET without
  std::optional<std::string> bearer;
};

struct HttpCallbacks {
  // Asked every 50 ms while waiting; true closes the connection and ends the exchange.
  std::function<bool()> interrupted;
  // Pieces of the body. An error ends the exchange with it.
  std::function<Status(int status, std::string_view piece)> body;
};

struct HttpOutcome {
  int status = 0;  // 0 when interrupted before the header
  bool interrupted = false;
};

// kUnavailable: no connection, or it broke; the message names host and port.
Expected<HttpOutcome> exchange(const HttpRequest& request, const HttpCallbacks& callbacks);

}  // namespace sterling::cli
