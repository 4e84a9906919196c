// sterling synth: a checkpoint with random weights, for benchmarks and capacity tests.
#include <array>
#include <string>

#include <boost/json.hpp>
#include <fmt/format.h>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/maker_support.h"
#include "cli/terminal.h"
#include "cli/version.h"
#include "config/report.h"
#include "config/resolver.h"
#include "lab/synth.h"

namespace sterling::cli {
namespace {

using config::Effect;
using config::Setting;
using config::SettingType;

constexpr std::array kSettings{
    Setting{.key = "config",
            .type = SettingType::kPath,
            .effect = Effect::kResults,
            .help =
                "The model's configuration: a config.json, or a folder that holds one. What it says of quantisation is "
                "replaced.",
            .placeholder = "FILE"},
    Setting{.key = "weights",
            .type = SettingType::kChoice,
            .default_text = "bf16",
            .effect = Effect::kResults,
            .help = "How weights are stored. fp8: a scale per tensor; fp8-block: one per 128 x 128 elements; nvfp4: as "
                    "ModelOpt writes it, routed experts alone where the model is a hybrid with experts.",
            .placeholder = "FORMAT",
            .choices = {{{"bf16"}, {"fp8"}, {"fp8-block"}, {"nvfp4"}}}},
    Setting{.key = "seed",
            .type = SettingType::kInteger,
            .default_text = "0",
            .effect = Effect::kResults,
            .help = "The same seed gives the same files, on every machine.",
            .placeholder = "N"},
    Setting{.key = "out",
            .type = SettingType::kPath,
            .help = "Where the checkpoint goes: a new or an empty folder.",
            .placeholder = "DIR"},
    Setting{.key = "layers",
            .type = SettingType::kInteger,
            .effect = Effect::kResults,
            .help = "Only the first N layers, so that a large model's shapes fit a small machine.",
            .placeholder = "N",
            .min = 1,
            .max = 4096},
    Setting{.key = "mtp",
            .type = SettingType::kBoolean,
            .default_text = "true",
            .help = "Also the MTP head, where the configuration has one (in BF16: of a large MoE model it is large)."},
    Setting{.key = "vision",
            .type = SettingType::kBoolean,
            .default_text = "true",
            .help = "Also the vision tower, where the configuration has one. It is never run."},
    kShardSize,
    kThreads,
    kJson,
};
constexpr config::Schema kSchema{.command = "synth", .settings = kSettings};

constexpr std::string_view kUsage =
    "Usage: sterling synth --config FILE --out DIR [options]\n\n"
    "Writes a checkpoint with random weights in the layout of published ones: safetensors, shards, index, "
    "quantisation\n"
    "metadata. It loads and runs at full speed everywhere a real one does; what it says is noise. There is no "
    "tokenizer.\n\n"
    "Examples:\n"
    "  sterling synth --config Qwen3.5-35B-A3B/config.json --weights nvfp4 --layers 8 --out /tmp/synth\n"
    "  sterling synth --config config.json --seed 7 --out /tmp/bf16 && sterling inspect /tmp/bf16\n\n";

Expected<lab::SynthOptions> read_options(const config::Settings& settings) {
  lab::SynthOptions options;
  options.config = settings.text("config");
  if (options.config.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "synth needs --config FILE: a config.json or a folder with one",
                      "--config");
  }
  options.out = settings.text("out");
  if (options.out.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "synth needs --out DIR: a new or an empty folder", "--out");
  }
  auto weights = lab::parse_weight_target(settings.text("weights"));
  if (!weights) return weights.error();
  options.request.weights = *weights;
  options.request.layers = settings.optional_integer("layers");
  options.request.mtp = settings.boolean("mtp");
  options.request.vision = settings.boolean("vision");
  options.request.version = kVersion;
  options.seed = static_cast<std::uint64_t>(settings.integer("seed"));
  options.shard_bytes = settings.integer("shard_size");
  options.stopped = InterruptWatch::pending;
  return options;
}

boost::json::object report_json(const lab::SynthReport& report, const lab::SynthOptions& options) {
  boost::json::array files;
  for (const std::string& file : report.files) files.emplace_back(file);
  boost::json::object document;
  document["path"] = report.out;
  document["architecture"] = report.architecture;
  document["layers"] = report.layers;
  document["weights"] = lab::weight_target_name(options.request.weights);
  document["seed"] = options.seed;
  document["tensors"] = report.tensors;
  document["quantised_modules"] = report.quantised_modules;
  document["bytes"] = report.bytes;
  document["files"] = std::move(files);
  return document;
}

}  // namespace

int run_synth(const Invocation& invocation) {
  if (config::asks_for_help(invocation.args)) {
    print_out(std::string(kUsage) + config::help_text(kSchema));
    return kExitOk;
  }
  auto settings = config::resolve(kSchema, {invocation.args, {}, {}});
  if (!settings) return report_error("synth", settings.error(), false);
  const bool json = settings->boolean("json");
  auto options = read_options(*settings);
  if (!options) return report_error("synth", options.error(), json);
  auto pool = start_maker_threads(*settings);
  if (!pool) return report_error("synth", pool.error(), json);
  const InterruptWatch watch;  // Ctrl-C ends the work in order
  Expected<lab::SynthReport> report = [&] {
    ProgressBar bar("writing");
    options->progress = [&bar](std::int64_t done, std::int64_t total) { bar.update(done, total); };
    return lab::synthesize(*options, **pool);
  }();
  if (!report) return report_error("synth", report.error(), json);
  if (json) {
    print_out(boost::json::serialize(report_json(*report, *options)) + "\n");
  } else {
    print_out(fmt::format("{}: {}, {} layers, {} tensors in {}, {} matrices quantised\n", report->out,
                          report->architecture, report->layers, report->tensors, format_bytes(report->bytes),
                          report->quantised_modules));
  }
  return kExitOk;
}

}  // namespace sterling::cli
