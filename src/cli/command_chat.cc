// sterling chat MODEL|URL: a conversation in the terminal, or one question with --ask. A MODEL is served by this process on a free
// loopback port, behind a random key, and then spoken to like any other server.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <memory>
#include <random>
#include <utility>

#include <boost/json.hpp>
#include <fmt/format.h>

#include "cli/chat_client.h"
#include "cli/chat_session.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/hub_access.h"
#include "cli/serving_host.h"
#include "cli/terminal.h"
#include "config/report.h"
#include "config/resolver.h"
#include "config/serve_settings.h"

namespace sterling::cli {
namespace {

using config::Effect;
using config::Setting;
using config::SettingType;

constexpr std::array kSettings{
    Setting{.key = "target",
            .type = SettingType::kPath,
            .help = "A checkpoint (directory or .gguf file) to load here, or the http:// address of a running server.",
            .placeholder = "MODEL|URL",
            .positional = true},
    Setting{.key = "ask", .help = "Ask this, print the answer as it streams, and exit.", .placeholder = "TEXT"},
    Setting{.key = "system", .effect = Effect::kResults, .help = "System prompt.", .placeholder = "TEXT"},
    Setting{.key = "temperature",
            .effect = Effect::kResults,
            .help = "Sampling temperature; 0 takes the most likely token. Without it: the server's default.",
            .placeholder = "X"},
    Setting{.key = "max_tokens",
            .type = SettingType::kInteger,
            .effect = Effect::kResults,
            .help = "Longest answer, in tokens.",
            .placeholder = "N",
            .min = 1},
    Setting{.key = "seed",
            .type = SettingType::kInteger,
            .effect = Effect::kResults,
            .help = "Seed of the sampler.",
            .placeholder = "N"},
    Setting{.key = "model",
            .help = "Name of the model at a URL. Without it: the first that the server lists.",
            .placeholder = "NAME"},
    Setting{.key = "api_key",
            .help = "Key of the server at a URL. Command lines are visible to other users: prefer the environment.",
            .placeholder = "KEY",
            .secret = true},
    Setting{.key = "json",
            .type = SettingType::kBoolean,
            .default_text = "false",
            .help = "With --ask: one JSON document on stdout."},
    // Of a MODEL that is loaded here; meanings and limits as in `sterling serve`, which checks them.
    Setting{.key = "compute",
            .effect = Effect::kResults,
            .help = "MODEL only: type of matrix products, bf16 or fp32.",
            .placeholder = "TYPE"},
    Setting{.key = "isa", .effect = Effect::kSpeed, .help = "MODEL only: kernel tier.", .placeholder = "TIER"},
    Setting{.key = "threads", .effect = Effect::kSpeed, .help = "MODEL only: compute threads.", .placeholder = "N"},
    Setting{.key = "max_model_len",
            .effect = Effect::kCapacity,
            .help = "MODEL only: longest conversation, in tokens.",
            .placeholder = "N"},
    Setting{.key = "kv_cache_memory",
            .effect = Effect::kCapacity,
            .help = "MODEL only: memory for the KV pool.",
            .placeholder = "SIZE"},
    Setting{.key = "chat_template",
            .effect = Effect::kResults,
            .help = "MODEL only: file with a chat template.",
            .placeholder = "FILE"},
};
constexpr config::Schema kSchema{.command = "chat", .settings = kSettings};
constexpr std::array<std::string_view, 6> kServeKeys{"compute",         "isa",          "threads", "max_model_len",
                                                     "kv_cache_memory", "chat_template"};

constexpr std::string_view kUsage =
    "Usage: sterling chat MODEL|URL [options]\n\n"
    "Talks to a model. /help in the conversation lists its commands; Ctrl-C stops an answer, Ctrl-D leaves.\n"
    "When standard input is no terminal, each line of it is one turn.\n\n"
    "Examples:\n"
    "  sterling chat ~/models/Qwen3.5-4B\n"
    "  sterling chat http://127.0.0.1:8000 --system \"Answer in one sentence.\"\n"
    "  sterling chat model.gguf --ask \"What is the capital of France?\" --temperature 0\n\n";

// STERLING_MODEL and the like belong to `serve`, so only what cannot be misunderstood is taken from the environment.
std::vector<std::pair<std::string, std::string>> own_environment(const Invocation& invocation) {
  std::vector<std::pair<std::string, std::string>> taken;
  for (const auto& entry : invocation.environment) {
    const bool serving = std::any_of(kServeKeys.begin(), kServeKeys.end(), [&](std::string_view key) {
      return entry.first == config::environment_name(*config::find_setting(kSchema, key));
    });
    if (serving || entry.first == "STERLING_API_KEY") taken.push_back(entry);
  }
  return taken;
}

Expected<std::optional<double>> read_temperature(const config::Settings& settings) {
  const auto text = settings.optional_text("temperature");
  if (!text) return std::optional<double>();
  double value = 0.0;
  const auto [end, problem] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (problem != std::errc() || end != text->data() + text->size() || !std::isfinite(value) || value < 0.0) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("--temperature {}: expected a number of at least 0", *text), "--temperature");
  }
  return std::optional<double>(value);
}

std::string random_key() {
  std::random_device device;
  std::string key;
  for (int i = 0; i < 8; ++i) key += fmt::format("{:08x}", device());
  return key;
}

// Serves `model` in this process. The key keeps other users of this machine out; it never leaves the process.
Expected<std::unique_ptr<ServingHost>> serve_here(const config::Settings& settings, const std::string& key,
                                                  const Invocation& invocation) {
  std::vector<std::string> args{settings.text("target"), "--port", "0", "--max-num-seqs", "1"};
  for (const std::string_view name : kServeKeys) {
    const auto value = settings.optional_text(name);
    if (!value) continue;
    args.push_back(config::flag_name(*config::find_setting(config::serve_schema(), name)));
    args.push_back(*value);
  }
  auto resolved = config::resolve(config::serve_schema(), {args, {}, {}});
  if (!resolved) return resolved.error();
  auto options = config::serve_options(*resolved);
  if (!options) return options.error();
  options->api_key = key;
  if (Status status = find_model(*options, invocation); !status) return status.error();
  return start_serving(*options, config::settings_json(*resolved), make_stderr_log({LogLevel::kWarning, false, false}));
}

Status check_request(const config::Settings& settings) {
  const std::string target = settings.text("target");
  if (target.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "chat needs a MODEL (directory, .gguf file or hub id) or a URL (http://HOST:PORT)", "MODEL|URL");
  }
  if (settings.boolean("json") && !settings.optional_text("ask")) {
    return make_error(ErrorCode::kInvalidArgument, "--json goes with --ask TEXT: a conversation is no single document",
                      "--json");
  }
  const bool is_url = target.find("://") != std::string::npos;
  for (const std::string_view key : kServeKeys) {
    const config::ResolvedValue& value = settings.at(key);
    if (!is_url || value.origin != config::Origin::kFlag) continue;
    return make_error(
        ErrorCode::kInvalidArgument,
        fmt::format("{} is for a MODEL that is loaded here; {} has settings of its own", value.source, target),
        value.source);
  }
  if (!is_url && settings.optional_text("model")) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--model names a model at a URL; a MODEL that is loaded here is the only one", "--model");
  }
  std::error_code ignored;
  if (!is_url && target.find(':') != std::string::npos && !std::filesystem::exists(target, ignored)) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("{} does not exist; did you mean http://{}?", target, target), "MODEL|URL");
  }
  return {};
}

ChatStyle read_style(const Invocation& invocation) {
  ChatStyle style;
  const bool out = isatty(STDOUT_FILENO) == 1;
  style.interactive = out && isatty(STDIN_FILENO) == 1;
  style.terminal = out;
  style.colours =
      out && environment_value(invocation, "NO_COLOR").empty() && environment_value(invocation, "TERM") != "dumb";
  return style;
}

Expected<int> chat(const config::Settings& settings, const ChatStyle& style, const Invocation& invocation) {
  if (Status status = check_request(settings); !status) return status.error();
  auto temperature = read_temperature(settings);
  if (!temperature) return temperature.error();
  const std::string target = settings.text("target");
  ChatParameters parameters{settings.text("model"), *temperature, settings.optional_integer("max_tokens"),
                            settings.optional_integer("seed")};
  std::optional<std::string> key = settings.optional_text("api_key");
  std::unique_ptr<ServingHost> host;
  std::string address = target;
  if (target.find("://") == std::string::npos) {
    key = random_key();
    auto started = serve_here(settings, *key, invocation);
    if (!started) return started.error();
    host = std::move(*started);
    address = "http://" + host->address();
    parameters.model = host->model_name();
  }
  auto url = parse_server_url(address);
  if (!url) return url.error();

  const InterruptWatch watch;  // from here on: while weights load, Ctrl-C ends the program
  ChatClient client(*url, key, InterruptWatch::pending);
  if (parameters.model.empty()) {
    auto model = client.first_model();
    if (!model) return model.error();
    parameters.model = *model;
  }
  ChatSession session(client, std::move(parameters), settings.text("system"), style);
  if (const auto question = settings.optional_text("ask")) return session.ask_once(*question, settings.boolean("json"));
  return session.converse(watch);
}

}  // namespace

int run_chat(const Invocation& invocation) {
  if (config::asks_for_help(invocation.args)) {
    print_out(std::string(kUsage) + config::help_text(kSchema));
    return kExitOk;
  }
  std::signal(SIGPIPE, SIG_IGN);
  const auto environment = own_environment(invocation);
  auto settings = config::resolve(kSchema, {invocation.args, environment, {}});
  if (!settings) return report_error("chat", settings.error(), false);
  auto code = chat(*settings, read_style(invocation), invocation);
  return code ? *code : report_error("chat", code.error(), settings->boolean("json"));
}

}  // namespace sterling::cli
