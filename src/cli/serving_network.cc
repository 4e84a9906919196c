#include "cli/serving_network.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include <fmt/format.h>

namespace sterling::cli {

Expected<std::vector<std::string>> read_keys(const config::ServeOptions& options) {
  std::vector<std::string> keys;
  if (options.api_key) keys.push_back(*options.api_key);
  if (!options.api_key_file) return keys;
  std::ifstream file(*options.api_key_file);
  if (!file) {
    return make_error(ErrorCode::kNotFound, fmt::format("--api-key-file {}: cannot be read", *options.api_key_file),
                      "--api-key-file");
  }
  for (std::string line; std::getline(file, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty() && line[0] != '#') keys.push_back(line);
  }
  if (keys.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("--api-key-file {}: holds no key", *options.api_key_file), "--api-key-file");
  }
  return keys;
}

Status check_port(const std::string& host, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (port == 0 || inet_pton(AF_INET, host == "localhost" ? "127.0.0.1" : host.c_str(), &address.sin_addr) != 1)
    return {};
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return {};
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const bool taken = bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 && errno == EADDRINUSE;
  close(fd);
  if (!taken) return {};
  return make_error(
      ErrorCode::kResourceExhausted,
      fmt::format("port {} on {} is in use by another process; choose another with --port, or --port 0 for a free one",
                  port, host),
      "--port");
}

}  // namespace sterling::cli
