// Requests and responses as plain values; the bytes of a response head. No sockets.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sterling::server {

enum class Method { kGet, kHead, kPost, kOptions, kOther };

struct Request {
  Method method = Method::kOther;
  std::string path;           // without the query, still percent-encoded
  std::string authorization;  // header values; empty when absent
  std::string origin;
  std::string host;
  std::string body;
  bool http_1_0 = false;
  bool keep_alive = true;
};

struct Response {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;
  bool close = false;
  bool sent = false;  // the handler wrote everything itself
};

std::string_view reason_phrase(int status);

// Head of a response; `content_length` absent: chunked, or until the connection closes for HTTP/1.0 (then close must be set).
struct ResponseHeadInfo {
  int status = 200;
  std::string_view content_type;
  std::optional<std::size_t> content_length;
  bool http_1_0 = false;
  bool close = false;
};
std::string response_head(const ResponseHeadInfo& info,
                          const std::vector<std::pair<std::string, std::string>>& headers);

// One chunk of a chunked body.
void append_chunk(std::string& out, std::string_view data);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

// {"error": …} in the API's shape.
Response error_response(int status, std::string_view type, std::string message, std::string_view code,
                        std::string_view param = {});

// "/v1/models" of "/v1/models?x=1" and "http://host/v1/models".
std::string path_of(std::string_view target);
// Nothing when an escape is malformed.
std::optional<std::string> percent_decode(std::string_view text);

}  // namespace sterling::server
