// sterling pull REPO: a checkpoint from the hub into the cache that all programs around it share.
#include <array>
#include <chrono>
#include <csignal>
#include <string>

#include <boost/json.hpp>
#include <fmt/format.h>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/hub_access.h"
#include "cli/terminal.h"
#include "cli/version.h"
#include "config/report.h"
#include "config/resolver.h"
#include "hub/pull.h"
#include "hub/url.h"

namespace sterling::cli {
namespace {

using config::Effect;
using config::Setting;
using config::SettingType;

constexpr std::array kSettings{
    Setting{.key = "repo",
            .effect = Effect::kResults,
            .help = "The model at the hub: ORG/NAME or ORG/NAME@REVISION.",
            .placeholder = "REPO",
            .positional = true},
    Setting{.key = "revision",
            .effect = Effect::kResults,
            .help = "Branch, tag or commit hash. Without it: main.",
            .placeholder = "REVISION"},
    Setting{.key = "include",
            .help = "Only files that match; * matches slashes too. May be given several times.",
            .placeholder = "PATTERN",
            .repeatable = true},
    Setting{.key = "exclude",
            .help = "No files that match. May be given several times; stronger than --include.",
            .placeholder = "PATTERN",
            .repeatable = true},
    Setting{.key = "dry_run",
            .type = SettingType::kBoolean,
            .default_text = "false",
            .help = "Say what would be fetched, and fetch nothing."},
    Setting{.key = "jobs",
            .type = SettingType::kInteger,
            .default_text = "8",
            .effect = Effect::kSpeed,
            .help = "Connections at a time, over several files and within a large one. Each may take 16 MiB of memory.",
            .placeholder = "N",
            .min = 1,
            .max = 64},
    Setting{
        .key = "retries",
        .type = SettingType::kInteger,
        .default_text = "5",
        .help = "Second attempts after a failure that may pass; data that arrives in between starts the count anew.",
        .placeholder = "N",
        .max = 1000},
    Setting{
        .key = "retry_wait",
        .type = SettingType::kSeconds,
        .default_text = "500ms",
        .help =
            "Before the first second attempt; doubles up to 30 s. A hub that asks to wait (Retry-After) gets its time.",
        .placeholder = "TIME",
        .max = 30},
    Setting{
        .key = "stall_timeout",
        .type = SettingType::kSeconds,
        .default_text = "30",
        .help =
            "A connection over which nothing came for so long is given up, and the file gone on with over another one.",
        .placeholder = "TIME",
        .min = 1,
        .max = 3600},
    Setting{.key = "token_file",
            .type = SettingType::kPath,
            .help = "File with the access token. Without it: HF_TOKEN, then the file that `hf auth login` wrote.",
            .placeholder = "FILE"},
    Setting{.key = "json",
            .type = SettingType::kBoolean,
            .default_text = "false",
            .help = "One JSON document on stdout, nothing else."},
};
constexpr std::array kForeign{
    config::ForeignFlag{"--token", "hf", "a token on a command line is shown by ps; set HF_TOKEN or use --token-file"},
    config::ForeignFlag{"--local-dir", "hf", "the cache is the one place; its path is printed at the end"},
    config::ForeignFlag{"--cache-dir", "hf", "set HF_HUB_CACHE, so that serve finds the model too"},
    config::ForeignFlag{"--max-workers", "hf", "here it is --jobs"},
};
constexpr config::Schema kSchema{.command = "pull", .settings = kSettings, .foreign = kForeign};

constexpr std::string_view kUsage =
    "Usage: sterling pull ORG/NAME[@REVISION] [options]\n\n"
    "Fetches a checkpoint into the Hugging Face cache: in parallel, every file checked against its hash, and from "
    "where\n"
    "an earlier run stopped. Prints the folder; every command that takes a MODEL then takes ORG/NAME.\n\n"
    "Examples:\n"
    "  sterling pull Qwen/Qwen3-4B && sterling serve Qwen/Qwen3-4B\n"
    "  sterling pull nvidia/Qwen3.5-397B-A17B-NVFP4 --exclude '*.md' --dry-run\n"
    "  sterling pull ORG/NAME@v1.0 --include '*.json' --include 'model-00001-*'\n\n"
    "Environment: HF_TOKEN, HF_TOKEN_PATH, HF_HOME, HF_HUB_CACHE, HF_ENDPOINT, HF_HUB_OFFLINE, https_proxy, "
    "no_proxy.\n\n";

std::chrono::milliseconds to_ms(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000.0));
}

// Certificates of a company's own proxy, by the names that Python and curl know.
std::string ca_file(const Invocation& invocation) {
  for (const char* name : {"REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"}) {
    std::string path = environment_value(invocation, name);
    if (!path.empty()) return path;
  }
  return {};
}

Expected<hub::PullOptions> read_options(const config::Settings& settings, const Invocation& invocation) {
  const std::string repo = settings.text("repo");
  if (repo.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "pull needs a REPO: ORG/NAME or ORG/NAME@REVISION", "REPO");
  }
  auto id = hub::parse_model_id(repo);
  if (!id) return id.error();
  const std::string revision = settings.text("revision");
  if (!revision.empty()) {
    if (Status status = hub::check_revision(revision); !status) return status.error();
    if (!id->revision.empty() && id->revision != revision) {
      return make_error(
          ErrorCode::kInvalidArgument,
          fmt::format("two revisions are given: {} in {}, and --revision {}", id->revision, repo, revision),
          "--revision");
    }
    id->revision = revision;
  }
  const hub::Locations locations = hub_locations(invocation);
  if (locations.offline) {
    return make_error(ErrorCode::kUnavailable,
                      "HF_HUB_OFFLINE is set: nothing is fetched; unset it, or use what is in the cache already",
                      "HF_HUB_OFFLINE");
  }
  if (!hub::origin_of(locations.endpoint)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "HF_ENDPOINT is no web address; accepted: https://HOST or http://HOST:PORT", "HF_ENDPOINT");
  }
  auto token = hub_token(settings.optional_text("token_file"), locations, invocation);
  if (!token) return token.error();

  hub::PullOptions options;
  options.repo = id->repo;
  if (!id->revision.empty()) options.revision = id->revision;
  options.cache = locations.cache;
  options.include = settings.list("include");
  options.exclude = settings.list("exclude");
  options.dry_run = settings.boolean("dry_run");
  options.jobs = static_cast<int>(settings.integer("jobs"));
  options.client.endpoint = locations.endpoint;
  options.client.token = std::move(*token);
  options.client.http.user_agent = fmt::format("sterling/{}", kVersion);
  options.client.http.stall_timeout = to_ms(settings.seconds("stall_timeout"));
  options.client.http.ca_file = ca_file(invocation);
  options.client.http.stopped = InterruptWatch::pending;
  options.client.retry.attempts = static_cast<int>(settings.integer("retries")) + 1;
  options.client.retry.first_wait = to_ms(settings.seconds("retry_wait"));
  options.client.seed = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  return options;
}

boost::json::object report_json(const hub::PullOptions& options, const hub::PullReport& report) {
  boost::json::array files;
  for (const hub::PulledFile& file : report.files) {
    boost::json::object entry;
    entry["path"] = file.path;
    entry["size"] = file.size ? boost::json::value(*file.size) : boost::json::value(nullptr);
    entry["blob"] = file.blob.empty() ? boost::json::value(nullptr) : boost::json::value(file.blob);
    entry["state"] = hub::pull_state_name(file.state);
    files.push_back(std::move(entry));
  }
  boost::json::object document;
  document["repo"] = options.repo.text();
  document["revision"] = options.revision;
  document["commit"] = report.commit;
  document["path"] = report.snapshot.string();
  document["dry_run"] = options.dry_run;
  document["bytes"] = {
      {"total", report.bytes_total}, {"missing", report.bytes_missing}, {"received", report.bytes_received}};
  document["files"] = std::move(files);
  return document;
}

std::string dry_run_text(const hub::PullReport& report) {
  std::string text;
  for (const hub::PulledFile& file : report.files) {
    text += fmt::format("{:<8} {:>12}  {}\n", hub::pull_state_name(file.state),
                        file.size ? format_bytes(*file.size) : "unknown", file.path);
  }
  return text + fmt::format("{} files, {}; {} to fetch into {}\n", report.files.size(),
                            format_bytes(report.bytes_total), format_bytes(report.bytes_missing),
                            report.snapshot.string());
}

}  // namespace

int run_pull(const Invocation& invocation) {
  if (config::asks_for_help(invocation.args)) {
    print_out(std::string(kUsage) + config::help_text(kSchema));
    return kExitOk;
  }
  std::signal(SIGPIPE, SIG_IGN);
  auto settings = config::resolve(kSchema, {invocation.args, {}, {}});
  if (!settings) return report_error("pull", settings.error(), false);
  const bool json = settings->boolean("json");
  auto options = read_options(*settings, invocation);
  if (!options) return report_error("pull", options.error(), json);

  const InterruptWatch watch;  // Ctrl-C ends the pull in order
  const LogSink log = make_stderr_log({LogLevel::kInfo, false, false});
  Expected<hub::PullReport> report = [&] {
    ProgressBar bar(options->repo.text());
    options->progress = [&bar](const hub::PullProgress& now) { bar.update(now.bytes_done, now.bytes_total); };
    options->client.log = [&bar, &log](LogLevel level, std::string_view message) {
      bar.clear();
      log(level, message);
    };
    return hub::pull(*options);
  }();
  if (!report) return report_error("pull", report.error(), json);
  if (json) {
    print_out(boost::json::serialize(report_json(*options, *report)) + "\n");
  } else if (options->dry_run) {
    print_out(dry_run_text(*report));
  } else {
    print_err(fmt::format("{}@{}: {} files, {}; {} came over the network\n", options->repo.text(), report->commit,
                          report->files.size(), format_bytes(report->bytes_total),
                          format_bytes(report->bytes_received)));
    print_out(report->snapshot.string() + "\n");
  }
  return kExitOk;
}

}  // namespace sterling::cli
