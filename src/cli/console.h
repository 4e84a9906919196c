// What commands print: results on stdout, everything else on stderr.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/log.h"
#include "base/status.h"

namespace sterling::cli {

// "sterling COMMAND: message" on stderr; with `json` also {"error":{"code","message","where"}} on stdout. Returns the exit code.
int report_error(std::string_view command, const Error& error, bool json);

void print_out(std::string_view text);  // stdout, as it stands
void print_err(std::string_view text);  // stderr, as it stands

bool stderr_is_terminal();

// One line on stderr that shows how far long work is; silent when stderr is no terminal. Not thread-safe.
class ProgressBar {
 public:
  explicit ProgressBar(std::string label);
  ~ProgressBar();  // clears the line
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(std::int64_t done, std::int64_t total);
  void clear();  // the line, so that something else can be printed; from any thread

 private:
  std::string label_;
  bool active_;
  std::chrono::steady_clock::time_point last_{};
};

// A log on stderr. Under the journal (JOURNAL_STREAM is set) lines carry no time and no colour: the journal has its own.
struct LogStyle {
  LogLevel least = LogLevel::kInfo;
  bool json = false;
  bool times = true;
};
LogSink make_stderr_log(const LogStyle& style);

// "1.25 GiB"
std::string format_bytes(std::int64_t bytes);

}  // namespace sterling::cli
