#include "cli/terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>

#include <signal.h>

namespace sterling::cli {
namespace {

std::atomic<bool> interrupted{false};
std::array<int, 2> wake_pipe{-1, -1};
struct sigaction previous_action {};

void on_interrupt(int) {
  const int saved = errno;
  interrupted.store(true, std::memory_order_relaxed);
  const char byte = 0;
  [[maybe_unused]] const ssize_t written = write(wake_pipe[1], &byte, 1);
  errno = saved;
}

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

}  // namespace

InterruptWatch::InterruptWatch() {
  interrupted = false;
  if (pipe2(wake_pipe.data(), O_CLOEXEC | O_NONBLOCK) != 0) wake_pipe = {-1, -1};
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &previous_action);
}

InterruptWatch::~InterruptWatch() {
  sigaction(SIGINT, &previous_action, nullptr);
  for (int& end : wake_pipe) {
    if (end >= 0) close(end);
    end = -1;
  }
}

bool InterruptWatch::pending() {
  return interrupted.load(std::memory_order_relaxed);
}

void InterruptWatch::clear() {
  std::array<char, 64> bytes;
  while (read(wake_pipe[0], bytes.data(), bytes.size()) > 0) {
  }
  interrupted = false;
}

int InterruptWatch::descriptor() const {
  return wake_pipe[0];
}

LineReader::Result LineReader::read(std::string& line, const InterruptWatch* watch) {
  while (true) {
    const std::size_t newline = buffer_.find('\n');
    if (newline != std::string::npos) {
      line = buffer_.substr(0, newline);
      buffer_.erase(0, newline + 1);
      return Result::kLine;
    }
    if (at_end_) {
      if (buffer_.empty()) return Result::kEnd;
      line = std::move(buffer_);  // the last line of a pipe may lack its newline
      buffer_.clear();
      return Result::kLine;
    }
    // A negative descriptor is left out by poll().
    std::array<pollfd, 2> wanted{pollfd{STDIN_FILENO, POLLIN, 0},
                                 pollfd{watch != nullptr ? watch->descriptor() : -1, POLLIN, 0}};
    if (poll(wanted.data(), wanted.size(), -1) < 0 && errno != EINTR) return Result::kFailed;
    if (watch != nullptr && InterruptWatch::pending()) return Result::kInterrupted;
    if (wanted[0].revents == 0) continue;
    std::array<char, 4096> bytes;
    const ssize_t count = ::read(STDIN_FILENO, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Result::kFailed;
    if (count == 0) at_end_ = true;
    buffer_.append(bytes.data(), static_cast<std::size_t>(count));
  }
}

std::string TerminalFilter::filter(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (after_c2_) {
      after_c2_ = false;
      if (byte >= 0x80 && byte < 0xa0) {
        result += kReplacement;
        continue;
      }
      result += '\xC2';
    }
    if (byte == 0xc2) {
      after_c2_ = true;
    } else if (c == '\n' || c == '\t' || (byte >= 0x20 && byte != 0x7f)) {
      result += c;
    } else if (c != '\r') {
      result += kReplacement;
    }
  }
  return result;
}

}  // namespace sterling::cli
