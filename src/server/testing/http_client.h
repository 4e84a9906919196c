// Test only: a blocking HTTP client on a raw loopback socket, so that tests can send what no well-behaved client would.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sterling::server::testing {

struct HttpAnswer {
  int status = 0;                              // 0: no answer came
  std::map<std::string, std::string> headers;  // lower-case names
  std::string body;
  bool complete = false;
};

class HttpClient {
 public:
  explicit HttpClient(std::uint16_t port, int receive_buffer = 0) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer > 0) ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    const timeval patience{.tv_sec = 20, .tv_usec = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  ~HttpClient() { close(); }
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  bool connected() const { return connected_; }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  void finish_sending() { ::shutdown(fd_, SHUT_WR); }

  // False when the connection broke.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }
  // Reads more into the buffer. False at the end, on an error and after twenty seconds of silence.
  bool receive() {
    char chunk[16384];
    const ssize_t n = ::recv(fd_, chunk, sizeof chunk, 0);
    if (n <= 0) return false;
    buffer_.append(chunk, static_cast<std::size_t>(n));
    return true;
  }
  // Whether the server closed without further bytes.
  bool closed_by_server() { return buffer_.empty() && !receive() && buffer_.empty(); }
  // Until the text is in the buffer. False when the connection ends before.
  bool receive_until(std::string_view text) {
    while (buffer_.find(text) == std::string::npos) {
      if (!receive()) return false;
    }
    return true;
  }

  HttpAnswer read_answer(bool head_only = false) {
    HttpAnswer out;
    if (!receive_until("\r\n\r\n")) return out;
    const std::size_t end = buffer_.find("\r\n\r\n");
    const std::string head = buffer_.substr(0, end + 2);
    buffer_.erase(0, end + 4);
    out.status = std::atoi(head.c_str() + 9);
    for (std::size_t at = head.find("\r\n") + 2; at < head.size();) {
      const std::size_t line_end = head.find("\r\n", at);
      const std::string line = head.substr(at, line_end - at);
      const std::size_t colon = line.find(": ");
      std::string name = line.substr(0, colon);
      std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
      out.headers[name] = line.substr(colon + 2);
      at = line_end + 2;
    }
    if (out.status == 100) return read_answer(head_only);
    if (head_only || out.status == 204) {
      out.complete = true;
    } else if (out.headers.contains("transfer-encoding")) {
      out.complete = read_chunks(out.body);
    } else if (out.headers.contains("content-length")) {
      const auto size = static_cast<std::size_t>(std::atoll(out.headers["content-length"].c_str()));
      while (buffer_.size() < size && receive()) {
      }
      out.complete = buffer_.size() >= size;
      out.body = buffer_.substr(0, size);
      buffer_.erase(0, size);
    } else {
      while (receive()) {
      }
      out.body = std::exchange(buffer_, {});
      out.complete = true;
    }
    return out;
  }

  static std::string request(std::string_view method, std::string_view path, std::string_view body = {},
                             std::string_view headers = {}) {
    std::string out =
        std::string(method) + ' ' + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\n" + std::string(headers);
    if (!body.empty()) out += "Content-Length: " + std::to_string(body.size()) + "\r\n";
    return out + "\r\n" + std::string(body);
  }
  HttpAnswer call(std::string_view method, std::string_view path, std::string_view body = {},
                  std::string_view headers = {}) {
    send(request(method, path, body, headers));
    return read_answer(method == "HEAD");
  }

 private:
  bool read_chunks(std::string& body) {
    for (;;) {
      if (!receive_until("\r\n")) return false;
      const std::size_t line_end = buffer_.find("\r\n");
      const std::size_t size = std::strtoul(buffer_.c_str(), nullptr, 16);
      while (buffer_.size() < line_end + 2 + size + 2) {
        if (!receive()) return false;
      }
      body += buffer_.substr(line_end + 2, size);
      buffer_.erase(0, line_end + 2 + size + 2);
      if (size == 0) return true;
    }
  }

  int fd_;
  bool connected_ = false;
  std::string buffer_;
};

}  // namespace sterling::server::testing
