#include "server/http_message.h"

#include <ctime>

#include <fmt/format.h>

#include "protocol/json_writer.h"

namespace sterling::server {
namespace {

// "Tue, 01 Dec 2026 00:00:00 GMT"; by hand, because strftime follows the locale.
std::string http_date() {
  static constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                            "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::time_t now = std::time(nullptr);
  std::tm t = {};
  gmtime_r(&now, &t);
  return fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT", kDays[t.tm_wday], t.tm_mday, kMonths[t.tm_mon],
                     1900 + t.tm_year, t.tm_hour, t.tm_min, t.tm_sec);
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string_view reason_phrase(int status) {
  switch (status) {
    case 200: return "OK";
    case 204: return "No Content";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 413: return "Content Too Large";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    default: return "Status";
  }
}

std::string response_head(const ResponseHeadInfo& info,
                          const std::vector<std::pair<std::string, std::string>>& headers) {
  std::string out = fmt::format("HTTP/1.1 {} {}\r\nServer: sterling\r\nDate: {}\r\n", info.status,
                                reason_phrase(info.status), http_date());
  if (!info.content_type.empty()) out += fmt::format("Content-Type: {}\r\n", info.content_type);
  if (info.content_length) {
    if (info.status != 204) out += fmt::format("Content-Length: {}\r\n", *info.content_length);
  } else if (!info.http_1_0) {
    out += "Transfer-Encoding: chunked\r\n";
  }
  // HTTP/1.0 clients must be told that the connection stays, HTTP/1.1 clients that it does not.
  if (info.close) {
    out += "Connection: close\r\n";
  } else if (info.http_1_0) {
    out += "Connection: keep-alive\r\n";
  }
  for (const auto& [name, value] : headers) out += fmt::format("{}: {}\r\n", name, value);
  out += "\r\n";
  return out;
}

void append_chunk(std::string& out, std::string_view data) {
  if (data.empty()) return;  // an empty chunk would end the body
  out += fmt::format("{:x}\r\n", data.size());
  out += data;
  out += "\r\n";
}

Response error_response(int status, std::string_view type, std::string message, std::string_view code,
                        std::string_view param) {
  Response response;
  response.status = status;
  protocol::JsonWriter json(response.body);
  json.begin_object().key("error").begin_object().field("message", message).field("type", type);
  json.key("param");
  if (param.empty()) {
    json.null();
  } else {
    json.string(param);
  }
  json.key("code");
  if (code.empty()) {
    json.null();
  } else {
    json.string(code);
  }
  json.end_object().end_object();
  return response;
}

std::string path_of(std::string_view target) {
  if (!target.starts_with('/')) {
    const std::size_t authority = target.find("://");
    if (authority == std::string_view::npos) return std::string(target);  // "*", or nonsense that no route has
    const std::size_t slash = target.find('/', authority + 3);
    target = slash == std::string_view::npos ? "/" : target.substr(slash);
  }
  return std::string(target.substr(0, target.find_first_of("?#")));
}

std::optional<std::string> percent_decode(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const int high = hex_digit(text[i + 1]);
    const int low = hex_digit(text[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

}  // namespace sterling::server
