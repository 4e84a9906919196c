// sterling serve MODEL: the server in the foreground, until SIGTERM or SIGINT.
#include <pthread.h>

#include <fstream>
#include <sstream>
#include <thread>

#include <fmt/format.h>
#include <signal.h>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/serving_host.h"
#include "cli/serving_precision.h"
#include "cli/version.h"
#include "config/config_file.h"
#include "config/report.h"
#include "config/resolver.h"
#include "config/serve_settings.h"

namespace sterling::cli {
namespace {

constexpr std::string_view kUsage =
    "Usage: sterling serve MODEL [options]\n\n"
    "Runs the server: OpenAI-compatible API on loopback.\n\n"
    "Examples:\n"
    "  sterling serve ~/models/Qwen3.5-4B\n"
    "  sterling serve model.gguf --port 8080 --max-model-len 8192\n"
    "  curl http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' \\\n"
    "    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}'\n\n"
    "Settings: flag > environment variable > configuration file > default.\n\n";

Expected<config::Settings> read_settings(const Invocation& invocation) {
  const config::Schema& schema = config::serve_schema();
  std::vector<config::FileEntry> file;
  if (const auto path = config::early_value(schema, {invocation.args, invocation.environment, {}}, "config")) {
    std::ifstream stream(*path, std::ios::binary);
    if (!stream) return make_error(ErrorCode::kNotFound, fmt::format("--config {}: cannot be read", *path), "--config");
    std::ostringstream text;
    text << stream.rdbuf();
    auto parsed = config::parse_config_file(text.str(), *path);
    if (!parsed) return parsed.error();
    file = std::move(*parsed);
  }
  return config::resolve(schema, {invocation.args, invocation.environment, file});
}

LogLevel level_of(const std::string& name) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "warning") return LogLevel::kWarning;
  if (name == "error") return LogLevel::kError;
  return LogLevel::kInfo;
}

bool under_journal(const Invocation& invocation) {
  for (const auto& [name, value] : invocation.environment) {
    if (name == "JOURNAL_STREAM" && !value.empty()) return !stderr_is_terminal();
  }
  return false;
}

}  // namespace

int run_serve(const Invocation& invocation) {
  if (config::asks_for_help(invocation.args)) {
    print_out(std::string(kUsage) + config::help_text(config::serve_schema()));
    return kExitOk;
  }
  auto settings = read_settings(invocation);
  if (!settings) return report_error("serve", settings.error(), false);
  auto options = config::serve_options(*settings);
  if (!options) return report_error("serve", options.error(), false);

  // Signals are taken by sigwait below; blocked here so that every thread started later inherits it.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);

  const LogSink log =
      make_stderr_log({level_of(options->log_level), options->log_format == "json", !under_journal(invocation)});
  for (const std::string& warning : settings->warnings()) log(LogLevel::kWarning, warning);
  log(LogLevel::kInfo, fmt::format("sterling {}", kVersion));
  log(LogLevel::kInfo, config::args_line(*settings));
  const std::string asked = options->model;
  if (Status status = find_model(*options, invocation); !status) {
    log(LogLevel::kError, status.error().message);
    return exit_code_for(status.error());
  }
  if (options->model != asked) log(LogLevel::kInfo, fmt::format("{} is {}", asked, options->model));
  if (options->dry_run) {
    const auto opened = open_serving(*options);
    if (!opened) return report_error("serve", opened.error(), false);
    print_out(precision_text(opened->precision));
    return kExitOk;
  }
  auto host = start_serving(*options, config::settings_json(*settings), log);
  if (!host) {
    log(LogLevel::kError, host.error().message);
    return exit_code_for(host.error());
  }

  int signal_number = 0;
  sigwait(&signals, &signal_number);
  log(LogLevel::kInfo, fmt::format("{}: no new requests; running ones get up to {} s (a second signal ends them now)",
                                   signal_number == SIGTERM ? "SIGTERM" : "SIGINT", options->drain_timeout));
  std::thread second([&] {
    int again = 0;
    sigwait(&signals, &again);
    (*host)->stop(std::chrono::milliseconds(0));
  });
  const std::size_t cut =
      (*host)->stop(std::chrono::milliseconds(static_cast<std::int64_t>(options->drain_timeout * 1000.0)));
  pthread_kill(second.native_handle(), SIGTERM);
  second.join();
  log(LogLevel::kInfo, cut == 0 ? std::string("stopped; every request had finished")
                                : fmt::format("stopped; {} requests were cut off", cut));
  return kExitOk;
}

}  // namespace sterling::cli
