// sterling calibrate MODEL: K/V scales from real prompts.
#include <array>
#include <charconv>

#include <fmt/format.h>

#include "cli/command.h"
#include "cli/common_settings.h"
#include "cli/console.h"
#include "cli/hub_access.h"
#include "cli/kv_capture.h"
#include "cli/output_file.h"
#include "cli/prompt_file.h"
#include "cli/runtime.h"
#include "cli/version.h"
#include "config/report.h"
#include "config/resolver.h"
#include "formats/kv_scales_file.h"
#include "lab/calibrate.h"
#include "lab/fingerprint.h"

namespace sterling::cli {
namespace {

using config::Effect;
using config::Setting;
using config::SettingType;

constexpr std::array kSettings{
    kModelArgument,
    Setting{
        .key = "prompts",
        .type = SettingType::kPath,
        .help = "What the model will see in use: JSONL with tokens, text, prompt or messages per line, or plain text.",
        .placeholder = "FILE"},
    Setting{.key = "out", .type = SettingType::kPath, .help = "The file to write.", .placeholder = "FILE"},
    Setting{.key = "force",
            .type = SettingType::kBoolean,
            .default_text = "false",
            .help = "Replace the file if it exists."},
    Setting{.key = "format",
            .type = SettingType::kChoice,
            .default_text = "sterling",
            .help = "sterling: K and V apart, per tensor or head. vllm, sglang: the JSON of their "
                    "--quantization-param-path, one value per layer for both.",
            .placeholder = "SHAPE",
            .choices = {{{"sterling"}, {"vllm"}, {"sglang"}}}},
    Setting{.key = "method",
            .type = SettingType::kChoice,
            .default_text = "mse",
            .effect = Effect::kResults,
            .help = "amax: nothing seen here clips. percentile: the largest values may. mse: the scale with the "
                    "smallest squared error.",
            .placeholder = "METHOD",
            .choices = {{{"mse"}, {"amax"}, {"percentile"}}}},
    Setting{.key = "percentile",
            .default_text = "99.99",
            .effect = Effect::kResults,
            .help = "Of |K| and |V|, for --method percentile.",
            .placeholder = "P"},
    Setting{.key = "margin",
            .default_text = "1.0",
            .effect = Effect::kResults,
            .help = "Scales are widened by this factor, for prompts that reach further.",
            .placeholder = "X"},
    Setting{.key = "granularity",
            .type = SettingType::kChoice,
            .default_text = "tensor",
            .effect = Effect::kResults,
            .help = "One scale per layer, or one per KV head.",
            .placeholder = "UNIT",
            .choices = {{{"tensor"}, {"head"}}}},
    Setting{.key = "dtype",
            .type = SettingType::kChoice,
            .default_text = "fp8_e4m3",
            .effect = Effect::kResults,
            .help = "The type that the scales are for.",
            .placeholder = "TYPE",
            .choices = {{{"fp8_e4m3"}, {"fp8_e5m2"}, {"fp8", "fp8_e4m3"}}}},
    Setting{.key = "tp",
            .type = SettingType::kInteger,
            .default_text = "1",
            .help = "Ranks that a vllm or sglang file is written for.",
            .placeholder = "N",
            .min = 1,
            .max = 64},
    Setting{.key = "context",
            .type = SettingType::kInteger,
            .default_text = "4096",
            .effect = Effect::kResults,
            .help = "Tokens per prompt at most; plain text is cut into pieces of it.",
            .placeholder = "N",
            .min = 1,
            .max = 1 << 30},
    Setting{.key = "max_tokens",
            .type = SettingType::kInteger,
            .default_text = "0",
            .effect = Effect::kResults,
            .help = "Of all prompts together; 0: all there are.",
            .placeholder = "N"},
    Setting{.key = "compute",
            .type = SettingType::kChoice,
            .default_text = "bf16",
            .effect = Effect::kResults,
            .help = "Type of matrix products while calibrating.",
            .placeholder = "TYPE",
            .choices = {{{"bf16"}, {"fp32"}}}},
    kIsaSetting,
    kThreadsSetting,
    kJsonSetting,
};
constexpr config::Schema kSchema{.command = "calibrate", .settings = kSettings};

constexpr std::string_view kUsage =
    "Usage: sterling calibrate MODEL --prompts FILE --out FILE [options]\n\n"
    "Runs real prompts through the model and chooses K/V scales of every attention layer for an FP8 cache.\n\n"
    "Examples:\n"
    "  sterling calibrate ~/models/Qwen3.5-4B --prompts traffic.jsonl --out kv.json\n"
    "  sterling serve ~/models/Qwen3.5-4B --kv-cache-dtype fp8_e4m3 --kv-scales kv.json\n"
    "  sterling calibrate ~/models/Qwen3.5-4B --prompts book.txt --out kv-vllm.json --format vllm --tp 8\n\n";

Error wrong(std::string_view flag, std::string message) {
  return make_error(ErrorCode::kInvalidArgument, fmt::format("{}: {}", flag, message), std::string(flag));
}

Expected<double> number(const config::Settings& settings, std::string_view key, double low, double high) {
  const std::string text = settings.text(key);
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value >= low && value <= high) return value;
  return wrong("--" + std::string(key), fmt::format("found '{}'; accepted: a number from {} to {}", text, low, high));
}

Expected<lab::CalibrateOptions> read_options(const config::Settings& settings) {
  lab::CalibrateOptions options;
  const auto percentile = number(settings, "percentile", 50.0, 100.0);
  if (!percentile) return percentile.error();
  const auto margin = number(settings, "margin", 0.125, 64.0);
  if (!margin) return margin.error();
  options.percentile = *percentile;
  options.margin = *margin;
  options.type = settings.text("dtype") == "fp8_e5m2" ? plan::KvType::kFp8E5m2 : plan::KvType::kFp8E4m3;
  const std::string method = settings.text("method");
  options.method = method == "amax"  ? lab::ScaleMethod::kAmax
                   : method == "mse" ? lab::ScaleMethod::kMse
                                     : lab::ScaleMethod::kPercentile;
  options.per_head = settings.text("granularity") == "head";
  const bool foreign = settings.text("format") != "sterling";
  if (foreign && options.per_head) {
    return wrong("--granularity",
                 "head: the vllm and sglang shapes hold one value per layer and rank; accepted with --format sterling");
  }
  if (foreign && options.type == plan::KvType::kFp8E5m2) {
    return wrong("--dtype", "fp8_e5m2: the vllm and sglang shapes are for fp8_e4m3; accepted with --format sterling");
  }
  if (!foreign && settings.integer("tp") != 1) return wrong("--tp", "is for --format vllm and sglang");
  return options;
}

struct Outcome {
  std::vector<lab::CalibratedLayer> layers;
  boost::json::object about;
};

Status run_passes(KvCapture& capture, const PromptFile& prompts, lab::Calibration& calibration) {
  ProgressBar bar("calibrating");
  std::int64_t done = 0;
  for (const bool second : {false, true}) {
    if (second) calibration.choose();
    for (const std::vector<std::int32_t>& prompt : prompts.prompts) {
      Status status = capture.run(prompt, [&](std::int64_t index, bool value, std::span<const float> values) -> Status {
        if (!second) return calibration.first(index, value, values);
        calibration.second(index, value, values);
        return {};
      });
      if (!status) return status;
      done += static_cast<std::int64_t>(prompt.size());
      bar.update(done, 2 * prompts.tokens);
    }
  }
  return {};
}

boost::json::object about(const config::Settings& settings, const lab::CalibrateOptions& options,
                          const Runtime& runtime, const PromptFile& prompts) {
  return {{"made_by", fmt::format("sterling {}", kVersion)},
          {"architecture", runtime.model->spec().architecture},
          {"fingerprint", lab::checkpoint_fingerprint(*runtime.checkpoint)},
          {"dtype", plan::kv_type_name(options.type)},
          {"method", lab::scale_method_name(options.method)},
          {"percentile", options.percentile},
          {"margin", options.margin},
          {"compute", settings.text("compute")},
          {"prompts", prompts.prompts.size()},
          {"tokens", prompts.tokens},
          {"prompts_sha256", prompts.sha256}};
}

Expected<Outcome> calibrate(const config::Settings& settings, const Invocation& invocation) {
  if (settings.text("model").empty())
    return wrong("MODEL", "calibrate needs a MODEL: a directory, a .gguf file or a hub id");
  if (settings.text("prompts").empty()) {
    return wrong(
        "--prompts",
        "calibrate needs prompts like those the model will see: ranges of K and V depend on them, and on invented "
        "text scales come out wrong");
  }
  const auto options = read_options(settings);
  if (!options) return options.error();
  if (settings.text("out").empty()) return wrong("--out", "calibrate needs a file to write");
  // Before minutes of work.
  if (Status status = check_output(settings.text("out"), "--out", settings.boolean("force")); !status)
    return status.error();
  auto found = resolve_model(settings.text("model"), invocation);
  if (!found) return found.error();
  RuntimeOptions runtime;
  runtime.model = found->path.string();
  runtime.compute = settings.text("compute") == "fp32" ? backend::Compute::kFp32 : backend::Compute::kBf16;
  runtime.isa = settings.optional_text("isa");
  if (settings.integer("threads") > 0) runtime.threads = static_cast<std::size_t>(settings.integer("threads"));
  auto opened = open_runtime(runtime);
  if (!opened) return opened.error();
  auto checked = model::check(*opened->checkpoint);
  if (!checked) return checked.error();
  if (checked->spec.count(LayerKind::kFullAttention) == 0)
    return wrong("MODEL", "has no full-attention layer and so no KV cache");
  if (settings.integer("context") > checked->spec.max_position_embeddings) {
    return wrong("--context", fmt::format("{} is beyond what the model was made for: max_position_embeddings is {}",
                                          settings.integer("context"), checked->spec.max_position_embeddings));
  }
  auto prompts = read_prompts(settings.text("prompts"), *opened->checkpoint,
                              {settings.integer("context"), settings.integer("max_tokens"), checked->spec.vocab_size});
  if (!prompts) return prompts.error();
  std::size_t longest = 1;
  for (const auto& prompt : prompts->prompts) longest = std::max(longest, prompt.size());
  if (Status status = load_weights(*opened); !status) return status.error();
  auto capture = KvCapture::create(std::move(*opened), static_cast<std::int64_t>(longest));
  if (!capture) return capture.error();
  lab::Calibration calibration(capture->spec(), *options);
  if (Status status = run_passes(*capture, *prompts, calibration); !status) return status.error();

  Outcome outcome{calibration.finish(), about(settings, *options, capture->runtime(), *prompts)};
  const auto scales = lab::calibrated_scales(outcome.layers);
  const boost::json::object document =
      settings.text("format") == "sterling"
          ? formats::kv_scales_json(scales, outcome.about)
          : formats::kv_scales_json_vllm(scales, capture->spec().layer_count(), settings.integer("tp"),
                                         capture->spec().model_type);
  if (Status status = write_output(settings.text("out"), "--out", boost::json::serialize(document) + "\n"); !status)
    return status.error();
  if (prompts->cut > 0) {
    print_err(fmt::format("{} prompts were longer than --context {} and lost their end\n", prompts->cut,
                          settings.integer("context")));
  }
  return outcome;
}

}  // namespace

int run_calibrate(const Invocation& invocation) {
  if (config::asks_for_help(invocation.args)) {
    print_out(std::string(kUsage) + config::help_text(kSchema));
    return kExitOk;
  }
  auto settings = config::resolve(kSchema, {invocation.args, {}, {}});
  if (!settings) return report_error("calibrate", settings.error(), false);
  const bool json = settings->boolean("json");
  auto outcome = calibrate(*settings, invocation);
  if (!outcome) return report_error("calibrate", outcome.error(), json);
  if (json) {
    boost::json::object document = outcome->about;
    document["out"] = settings->text("out");
    document["format"] = settings->text("format");
    document["layers"] = lab::calibration_json(outcome->layers);
    print_out(boost::json::serialize(document) + "\n");
  } else {
    print_out(lab::calibration_text(outcome->layers) + fmt::format("\n{} written\n", settings->text("out")));
  }
  return kExitOk;
}

}  // namespace sterling::cli
