// sterling quantize MODEL: the same model with FP8 or NVFP4 weights.
#include <array>
#include <cctype>
#include <cmath>
#include <map>
#include <string>

#include <boost/json.hpp>
#include <fmt/format.h>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/hub_access.h"
#include "cli/maker_support.h"
#include "cli/terminal.h"
#include "cli/version.h"
#include "config/report.h"
#include "config/resolver.h"
#include "formats/checkpoint.h"
#include "lab/quantize.h"

namespace sterling::cli {
namespace {

using config::Effect;
using config::Setting;
using config::SettingType;

constexpr std::array kSettings{
    Setting{.key = "model",
            .type = SettingType::kPath,
            .help = "The checkpoint: a directory of safetensors in BF16, FP16 or FP32, or a hub id in the local cache.",
            .placeholder = "MODEL",
            .positional = true},
    Setting{.key = "to",
            .type = SettingType::kChoice,
            .effect = Effect::kResults,
            .help =
                "nvfp4: FP4 with a scale per 16 elements (ModelOpt's layout, weight-only); fp8: E4M3 with a scale per "
                "tensor (ModelOpt's layout); fp8-block: E4M3 with a scale per 128 x 128 elements (weight_scale_inv).",
            .placeholder = "FORMAT",
            .choices = {{{"nvfp4"}, {"fp8"}, {"fp8-block"}}}},
    Setting{.key = "out",
            .type = SettingType::kPath,
            .help = "Where the result goes: a new or an empty folder.",
            .placeholder = "DIR"},
    Setting{.key = "search",
            .type = SettingType::kChoice,
            .default_text = "max",
            .effect = Effect::kResults,
            .help =
                "How NVFP4's block scales are chosen: from the block's largest element, or the scale with the least "
                "squared error (slower, about 1 dB better).",
            .placeholder = "METHOD",
            .choices = {{{"max"}, {"mse"}}}},
    Setting{.key = "exclude",
            .effect = Effect::kResults,
            .help =
                "Matrices to leave as they are, by module name; * matches dots too. May be given several times. Output "
                "head, routers, small GDN projections, MTP head and vision tower always stay.",
            .placeholder = "PATTERN",
            .repeatable = true},
    kShardSize,
    kThreads,
    kJson,
};
constexpr config::Schema kSchema{.command = "quantize", .settings = kSettings};

constexpr std::string_view kUsage =
    "Usage: sterling quantize MODEL --to FORMAT --out DIR [options]\n\n"
    "Writes a model again with smaller weights, each rounded to the nearest code, and reports the error of every "
    "matrix.\n"
    "Nothing is calibrated: no data is needed, and input scales of FP8 are 1.\n\n"
    "Examples:\n"
    "  sterling quantize ~/models/Qwen3-4B --to nvfp4 --search mse --out ~/models/Qwen3-4B-NVFP4\n"
    "  sterling quantize Qwen/Qwen3-4B --to fp8-block --exclude '*.layers.0.*' --out out --json\n\n";

Expected<lab::QuantizeOptions> read_options(const config::Settings& settings) {
  const auto missing = [](std::string message, std::string where) {
    return make_error(ErrorCode::kInvalidArgument, std::move(message), std::move(where));
  };
  if (settings.text("model").empty()) return missing("quantize needs a MODEL: a directory or a hub id", "MODEL");
  const auto to = settings.optional_text("to");
  if (!to) return missing("quantize needs --to FORMAT; accepted: nvfp4, fp8, fp8-block", "--to");
  lab::QuantizeOptions options;
  auto target = lab::parse_weight_target(*to);
  if (!target) return target.error();
  options.target = *target;
  options.out = settings.text("out");
  if (options.out.empty()) return missing("quantize needs --out DIR: a new or an empty folder", "--out");
  options.search = settings.text("search") == "mse" ? quant::ScaleSearch::kMse : quant::ScaleSearch::kMax;
  options.excludes = settings.list("exclude");
  options.shard_bytes = settings.integer("shard_size");
  options.version = kVersion;
  options.stopped = InterruptWatch::pending;
  return options;
}

// JSON has no infinity: an exact matrix has no SQNR.
boost::json::value finite_or_null(double value) {
  return std::isfinite(value) ? boost::json::value(value) : boost::json::value(nullptr);
}

boost::json::object error_json(const quant::QuantError& error) {
  return {{"max_abs_error", error.max_abs},
          {"relative_rms_error", error.relative_rms()},
          {"sqnr_db", finite_or_null(error.sqnr_db())}};
}

quant::QuantError total_error(const lab::QuantizeReport& report) {
  quant::QuantError total;
  for (const lab::QuantizedModule& module : report.modules) total.merge(module.error);
  return total;
}

boost::json::object report_json(const lab::QuantizeReport& report, const lab::QuantizeOptions& options) {
  boost::json::array modules;
  for (const lab::QuantizedModule& module : report.modules) {
    boost::json::object entry{{"module", module.module.name}, {"shape", {module.module.rows, module.module.cols}}};
    for (auto& [key, value] : error_json(module.error)) entry[key] = value;
    modules.push_back(std::move(entry));
  }
  boost::json::array left;
  for (const std::string& name : report.left) left.emplace_back(name);
  boost::json::array files;
  for (const std::string& name : report.files) files.emplace_back(name);
  boost::json::object document;
  document["path"] = report.out;
  document["to"] = lab::weight_target_name(options.target);
  document["search"] = options.search == quant::ScaleSearch::kMse ? "mse" : "max";
  document["bytes"] = {{"source", report.source_bytes}, {"written", report.bytes}};
  document["total"] = error_json(total_error(report));
  document["modules"] = std::move(modules);
  document["left"] = std::move(left);
  document["files"] = std::move(files);
  return document;
}

// "model.layers.0.mlp.experts.*.up_proj": the experts of a layer make one line.
std::string table_name(const std::string& module) {
  constexpr std::string_view kExperts = ".experts.";
  const std::size_t at = module.find(kExperts);
  if (at == std::string::npos) return module;
  const std::size_t number = at + kExperts.size();
  std::size_t end = number;
  while (end < module.size() && std::isdigit(static_cast<unsigned char>(module[end])) != 0) ++end;
  return module.substr(0, number) + "*" + module.substr(end);
}

std::string report_text(const lab::QuantizeReport& report) {
  struct Line {
    std::string name;
    std::string shape;
    quant::QuantError error;
    std::int64_t count = 0;
  };
  std::vector<Line> lines;
  std::map<std::string, std::size_t> place;
  for (const lab::QuantizedModule& module : report.modules) {
    const std::string name = table_name(module.module.name);
    const auto [entry, fresh] = place.try_emplace(name, lines.size());
    if (fresh) lines.push_back({name, fmt::format("{} x {}", module.module.rows, module.module.cols), {}, 0});
    lines[entry->second].error.merge(module.error);
    ++lines[entry->second].count;
  }
  std::string text = fmt::format("{:<56}{:>8}{:>16}{:>12}{:>12}{:>10}\n", "matrix", "count", "shape", "max error",
                                 "rms error", "SQNR dB");
  const auto row = [&](std::string_view name, std::int64_t count, std::string_view shape,
                       const quant::QuantError& error) {
    text += fmt::format("{:<56}{:>8}{:>16}{:>12.3e}{:>11.2f}%{:>10.2f}\n", name, count, shape, error.max_abs,
                        100.0 * error.relative_rms(), error.sqnr_db());
  };
  for (const Line& line : lines) row(line.name, line.count, line.shape, line.error);
  row("all", static_cast<std::int64_t>(report.modules.size()), "", total_error(report));
  return text + fmt::format("{} matrices stay as they are; {} became {} in {}\n", report.left.size(),
                            format_bytes(report.source_bytes), format_bytes(report.bytes), report.out);
}

}  // namespace

int run_quantize(const Invocation& invocation) {
  if (config::asks_for_help(invocation.args)) {
    print_out(std::string(kUsage) + config::help_text(kSchema));
    return kExitOk;
  }
  auto settings = config::resolve(kSchema, {invocation.args, {}, {}});
  if (!settings) return report_error("quantize", settings.error(), false);
  const bool json = settings->boolean("json");
  auto options = read_options(*settings);
  if (!options) return report_error("quantize", options.error(), json);
  const auto resolved = resolve_model(settings->text("model"), invocation);
  if (!resolved) return report_error("quantize", resolved.error(), json);
  const auto source = formats::Checkpoint::open(resolved->path);
  if (!source) return report_error("quantize", source.error(), json);
  auto pool = start_maker_threads(*settings);
  if (!pool) return report_error("quantize", pool.error(), json);
  const InterruptWatch watch;  // Ctrl-C ends the work in order
  Expected<lab::QuantizeReport> report = [&] {
    ProgressBar bar("quantising");
    options->progress = [&bar](std::int64_t done, std::int64_t total) { bar.update(done, total); };
    return lab::quantize(*source, *options, **pool);
  }();
  if (!report) return report_error("quantize", report.error(), json);
  if (json) {
    print_out(boost::json::serialize(report_json(*report, *options)) + "\n");
  } else {
    print_out(report_text(*report));
  }
  return kExitOk;
}

}  // namespace sterling::cli
