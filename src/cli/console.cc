#include "cli/console.h"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <ctime>
#include <memory>
#include <mutex>

#include <boost/json.hpp>
#include <fmt/chrono.h>
#include <fmt/format.h>

#include "cli/command.h"

namespace sterling::cli {
namespace {

std::string_view level_name(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return "DEBUG";
    case LogLevel::kInfo: return "INFO";
    case LogLevel::kWarning: return "WARNING";
    case LogLevel::kError: return "ERROR";
  }
  return "INFO";
}

std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", local);
}

}  // namespace

int report_error(std::string_view command, const Error& error, bool json) {
  print_err(fmt::format("sterling {}: {}\n", command, error.message));
  if (json) {
    boost::json::object body;
    body["code"] = error_code_name(error.code);
    body["message"] = error.message;
    body["where"] = error.where.empty() ? boost::json::value(nullptr) : boost::json::value(error.where);
    print_out(boost::json::serialize(boost::json::object{{"error", std::move(body)}}) + "\n");
  }
  return exit_code_for(error);
}

void print_out(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void print_err(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

bool stderr_is_terminal() {
  return isatty(STDERR_FILENO) == 1;
}

ProgressBar::ProgressBar(std::string label) : label_(std::move(label)), active_(stderr_is_terminal()) {}

ProgressBar::~ProgressBar() {
  if (active_ && last_ != std::chrono::steady_clock::time_point{}) print_err("\r\033[K");
}

void ProgressBar::clear() {
  if (active_) print_err("\r\033[K");
}

void ProgressBar::update(std::int64_t done, std::int64_t total) {
  if (!active_ || total <= 0) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - last_ < std::chrono::milliseconds(50) && done < total) return;
  last_ = now;
  constexpr std::int64_t kWidth = 30;
  const std::int64_t filled = kWidth * done / total;
  print_err(fmt::format("\r\033[K{} [{:=<{}}{: <{}}] {:3d} %  {} / {}", label_, "", filled, "", kWidth - filled,
                        100 * done / total, format_bytes(done), format_bytes(total)));
}

LogSink make_stderr_log(const LogStyle& style) {
  auto mutex = std::make_shared<std::mutex>();
  return [style, mutex](LogLevel level, std::string_view message) {
    if (level < style.least) return;
    std::string line;
    if (style.json) {
      boost::json::object entry;
      if (style.times) entry["time"] = now_text();
      entry["level"] = level_name(level);
      entry["message"] = message;
      line = boost::json::serialize(entry) + "\n";
    } else if (style.times) {
      line = fmt::format("[{}] {} {}\n", now_text(), level_name(level), message);
    } else {
      line = fmt::format("{} {}\n", level_name(level), message);
    }
    const std::lock_guard lock(*mutex);
    print_err(line);
  };
}

std::string format_bytes(std::int64_t bytes) {
  constexpr std::array kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024.0 && unit + 1 < kUnits.size()) {
    value /= 1024.0;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.2f} {}", value, kUnits[unit]);
}

}  // namespace sterling::cli
