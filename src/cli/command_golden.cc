// sterling golden DIR: is what we compute what transformers computes?
#include <algorithm>
#include <array>
#include <filesystem>

#include <fmt/format.h>

#include "base/check.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/golden_subject.h"
#include "cli/precision_subject.h"
#include "cli/runtime.h"
#include "config/report.h"
#include "config/resolver.h"
#include "lab/golden.h"

namespace sterling::cli {
namespace {

using config::Effect;
using config::Setting;
using config::SettingType;

constexpr std::array kSettings{
    Setting{.key = "dir",
            .type = SettingType::kPath,
            .help = "Folder with checkpoint/ and golden.safetensors.",
            .placeholder = "DIR",
            .positional = true},
    Setting{.key = "compute",
            .type = SettingType::kChoice,
            .default_text = "fp32",
            .effect = Effect::kResults,
            .help = "Type of matrix products, and the bound that goes with it.",
            .placeholder = "TYPE",
            .choices = {{{"fp32"}, {"bf16"}}}},
    Setting{.key = "isa",
            .type = SettingType::kChoice,
            .effect = Effect::kSpeed,
            .help = "Kernel tier; all give the same bits.",
            .placeholder = "TIER",
            .word = "auto",
            .choices = {{{"scalar"}, {"avx2"}, {"avx512"}, {"avx512bf16"}}}},
    Setting{.key = "threads",
            .type = SettingType::kInteger,
            .default_text = "0",
            .effect = Effect::kSpeed,
            .help = "Compute threads; 0: one per physical core.",
            .placeholder = "N",
            .max = 4096},
    Setting{.key = "chunk",
            .type = SettingType::kInteger,
            .default_text = "0",
            .effect = Effect::kSpeed,
            .help = "Prompt tokens per step; 0: all at once. Results have the same bits.",
            .placeholder = "N",
            .max = 1 << 20},
    Setting{.key = "kv_cache_dtype",
            .type = SettingType::kChoice,
            .effect = Effect::kResults,
            .help = "Stored type of keys and values; not given: that of the compute type. fp8_e4m3 is compared with "
                    "the set that has the "
                    "checkpoint's scales.",
            .placeholder = "TYPE",
            .choices = {{{"fp32"}, {"bf16"}, {"fp8_e4m3"}, {"fp8", "fp8_e4m3"}}}},
    Setting{.key = "accept_unscaled_kv",
            .type = SettingType::kBoolean,
            .default_text = "false",
            .effect = Effect::kResults,
            .help = "With fp8_e4m3: scales of 1.0 whatever the checkpoint holds, compared with the set made so."},
    Setting{
        .key = "group",
        .help = "Entry group in files that hold several (kv_none, kv_scaled, kv_unit); not given: the one that fits.",
        .placeholder = "NAME"},
    Setting{
        .key = "json", .type = SettingType::kBoolean, .default_text = "false", .help = "One JSON document on stdout."},
};
constexpr config::Schema kSchema{.command = "golden", .settings = kSettings};

// How K and V are to be stored.
struct GoldenKv {
  std::optional<plan::KvFormat> format;  // empty: as the compute type has it
  bool unscaled = false;

  bool fp8() const { return format && format->k == plan::KvType::kFp8E4m3; }
};

GoldenKv wished_kv(const config::Settings& settings) {
  GoldenKv kv;
  kv.unscaled = settings.boolean("accept_unscaled_kv");
  if (const auto name = settings.optional_text("kv_cache_dtype")) {
    const auto type = plan::kv_type_from_name(*name);
    STERLING_CHECK(type.has_value());
    kv.format = plan::KvFormat{*type, *type};
  }
  return kv;
}

// The set that was made with K and V as they are to be stored.
Expected<std::string> choose_group(const std::filesystem::path& file, const std::string& asked, const GoldenKv& kv) {
  if (!asked.empty()) return asked;
  auto groups = lab::golden_groups(file);
  if (!groups) return groups.error();
  const bool several = std::find(groups->begin(), groups->end(), "") == groups->end() && !groups->empty();
  if (kv.fp8() && !several) {
    return make_error(
        ErrorCode::kInvalidArgument,
        fmt::format("--kv-cache-dtype fp8_e4m3: {} has no set made with FP8 keys and values", file.string()),
        "--kv-cache-dtype");
  }
  if (!several) return std::string();
  return std::string(!kv.fp8() ? "kv_none" : kv.unscaled ? "kv_unit" : "kv_scaled");
}

Expected<plan::KvScales> scales_for(const Runtime& runtime, const GoldenKv& kv) {
  if (!kv.fp8()) return plan::KvScales{};
  PrecisionRequest request;
  request.checkpoint = runtime.checkpoint.get();
  request.spec = &runtime.model->spec();
  request.backend = runtime.backend->capabilities();
  request.wishes.kv = {"fp8_e4m3", "flag --kv-cache-dtype"};
  request.wishes.accept_unscaled_kv = kv.unscaled;
  auto precision = resolve(request);
  if (!precision) return precision.error();
  return kv.unscaled ? plan::KvScales{} : precision->kv_scales;
}

Expected<lab::GoldenReport> compare(const config::Settings& settings) {
  const std::filesystem::path dir = settings.text("dir");
  if (dir.empty())
    return make_error(ErrorCode::kInvalidArgument, "golden needs a DIR with checkpoint/ and golden.safetensors", "DIR");
  const GoldenKv kv = wished_kv(settings);
  auto group = choose_group(dir / "golden.safetensors", settings.text("group"), kv);
  if (!group) return group.error();
  auto data = lab::load_golden(dir / "golden.safetensors", *group);
  if (!data) return data.error();
  RuntimeOptions options;
  options.model = (dir / "checkpoint").string();
  options.compute = settings.text("compute") == "fp32" ? backend::Compute::kFp32 : backend::Compute::kBf16;
  options.isa = settings.optional_text("isa");
  if (settings.integer("threads") > 0) options.threads = static_cast<std::size_t>(settings.integer("threads"));
  auto runtime = load_runtime(options);
  if (!runtime) return runtime.error();
  const std::string isa = runtime->kernels->name;
  const bool moe = runtime->model->spec().moe.has_value();
  auto scales = scales_for(*runtime, kv);
  if (!scales) return scales.error();
  std::size_t longest = 1;
  for (const lab::GoldenPrompt& prompt : data->prompts) {
    longest = std::max(longest, prompt.tokens.size() + prompt.greedy_tokens.size());
  }
  auto subject = ModelSubject::create(std::move(*runtime), static_cast<std::int32_t>(longest),
                                      static_cast<std::int32_t>(settings.integer("chunk")), kv.format, *scales);
  if (!subject) return subject.error();
  // K and V in BF16 round like a product's input.
  const bool rounds = options.compute == backend::Compute::kBf16 || (kv.format && kv.format->k == plan::KvType::kBf16);
  const auto compute = rounds ? lab::GoldenCompute::kBf16 : lab::GoldenCompute::kFp32;
  // What the routers decide without BF16 roundings.
  std::unique_ptr<ModelSubject> unrounded;
  if (moe && compute == lab::GoldenCompute::kBf16) {
    options.compute = backend::Compute::kFp32;
    auto second = load_runtime(options);
    if (!second) return second.error();
    auto created = ModelSubject::create(std::move(*second), static_cast<std::int32_t>(longest), 0);
    if (!created) return created.error();
    unrounded = std::move(*created);
  }
  return lab::compare_golden(**subject, *data, compute, isa, unrounded.get());
}

std::string describe(const lab::GoldenReport& report) {
  std::string text = fmt::format("{} · compute {} · {}\n", report.family,
                                 report.compute == lab::GoldenCompute::kFp32 ? "fp32" : "bf16", report.isa);
  text += fmt::format("{:<8}{:>7}{:>14}{:>14}{:>14}{:>12}{:>10}\n", "prompt", "tokens", "max error", "bound",
                      "HF fp32 err", "top-1", "greedy");
  for (const lab::GoldenPromptResult& prompt : report.prompts) {
    text += fmt::format("{:<8}{:>7}{:>14.3e}{:>14.3e}{:>14.3e}{:>12}{:>10}{}\n", prompt.name, prompt.length,
                        prompt.logits.max_abs_error, prompt.logits.bound, prompt.logits.hf_fp32_error.value_or(0.0),
                        fmt::format("{}/{}", prompt.top1_matches, prompt.top1_total),
                        fmt::format("{}/{}", prompt.greedy.matched, prompt.greedy.tokens),
                        prompt.logits.within() && prompt.greedy.passed() ? "" : "  FAILED");
    for (const lab::GoldenFlip& flip : prompt.flips) {
      text += fmt::format(
          "  BF16 picks another expert at position {} in MoE layer {}: margin {:.1e}, a tie up to {:.1e}{}\n",
          flip.position, flip.layer, flip.margin, flip.allowed, flip.excused() ? "" : "  FAILED");
    }
  }
  for (std::size_t i = 0; i < report.layers.size(); ++i) {
    const lab::GoldenLayerResult& layer = report.layers[i];
    text += fmt::format("layer {:<4} hidden {:.3e} (bound {:.3e})", i, layer.hidden.max_abs_error, layer.hidden.bound);
    for (const lab::GoldenResult& entry : layer.entries) {
      text += fmt::format(" · {} {:.2e}/{:.2e}{}", entry.name, entry.max_abs_error, entry.bound,
                          entry.within() ? "" : " FAILED");
    }
    text += layer.hidden.within() ? "\n" : "  FAILED\n";
  }
  return text + (report.passed() ? "passed\n" : "FAILED\n");
}

}  // namespace

int run_golden(const Invocation& invocation) {
  if (config::asks_for_help(invocation.args)) {
    print_out(
        "Usage: sterling golden DIR [options]\n\nCompares a model with reference vectors made with transformers, layer "
        "by layer.\n\n"
        "Example:\n  sterling golden tests/golden/qwen3_5 --compute fp32 --json\n\n" +
        config::help_text(kSchema));
    return kExitOk;
  }
  auto settings = config::resolve(kSchema, {invocation.args, {}, {}});
  if (!settings) return report_error("golden", settings.error(), false);
  const bool json = settings->boolean("json");
  auto report = compare(*settings);
  if (!report) return report_error("golden", report.error(), json);
  print_out(json ? boost::json::serialize(lab::golden_report_json(*report)) + "\n" : describe(*report));
  return report->passed() ? kExitOk : kExitMismatch;
}

}  // namespace sterling::cli
