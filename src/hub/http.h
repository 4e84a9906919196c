// One HTTP request at a time over kept connections (libcurl). No redirects, no retries, no cookies, no .netrc: what is sent where is
// decided above. Proxies follow the usual variables (https_proxy, no_proxy), which libcurl reads.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace sterling::hub {

struct HttpReply {
  int status = 0;                                            // 0: none arrived
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case, in order

  // The first header of that name (lower case), or nullptr.
  const std::string* header(std::string_view name) const;
  // Content-Length, or nothing.
  std::optional<std::int64_t> content_length() const;
};

struct HttpCall {
  std::string url;
  bool head = false;                 // HEAD instead of GET
  std::vector<std::string> headers;  // "Name: value"
  // The final header block has arrived; an error ends the call with it. May be empty.
  std::function<Status(const HttpReply&)> on_reply;
  // Pieces of the body; an error ends the call with it. May be empty: the body is dropped.
  std::function<Status(std::string_view)> on_body;
};

enum class Transport {
  kOk,
  kUnreachable,  // no name, no connection, no TLS
  kCut,          // the connection broke after the request was sent
  kStalled,      // no byte for the stall timeout
  kStopped,      // `stopped` said so
  kRefused,      // a callback returned an error
  kUntrusted,    // the server's certificate
  kImpossible,   // retrying can't help: no memory, an address that is none
};

struct HttpOutcome {
  Transport transport = Transport::kOk;
  HttpReply reply;
  std::string detail;            // libcurl's words when transport is not kOk
  std::optional<Error> refusal;  // of kRefused
};

struct HttpOptions {
  std::chrono::milliseconds connect_timeout{15000};
  std::chrono::milliseconds stall_timeout{30000};
  std::string user_agent;
  std::string ca_file;  // certificates to trust instead of the system's; may be empty
  std::function<bool()>
      stopped;  // asked about once a second while waiting and with every piece; from the calling thread
};

// Not thread-safe; one per thread. While any lives, libcurl is initialised.
class HttpSession {
 public:
  explicit HttpSession(HttpOptions options);
  ~HttpSession();
  HttpSession(const HttpSession&) = delete;
  HttpSession& operator=(const HttpSession&) = delete;

  HttpOutcome perform(const HttpCall& call);

 private:
  struct Handle;
  HttpOptions options_;
  std::unique_ptr<Handle> handle_;
};

}  // namespace sterling::hub
