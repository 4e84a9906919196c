// sterling inspect MODEL: what a checkpoint contains, for people or as one JSON document.
#include <array>
#include <optional>
#include <string>

#include <boost/json.hpp>
#include <fmt/format.h>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/hub_access.h"
#include "config/report.h"
#include "config/resolver.h"
#include "lab/inspect.h"

namespace sterling::cli {
namespace {

using config::Setting;
using config::SettingType;

constexpr std::array kSettings{
    Setting{.key = "model",
            .type = SettingType::kPath,
            .help =
                "The checkpoint: a directory in Hugging Face layout (a config.json alone will do), a .gguf file, or a "
                "hub id in the local cache (see `sterling pull`).",
            .placeholder = "MODEL",
            .positional = true},
    Setting{.key = "json",
            .type = SettingType::kBoolean,
            .default_text = "false",
            .help = "One JSON document on stdout, nothing else."},
};
constexpr config::Schema kSchema{.command = "inspect", .settings = kSettings};

constexpr std::string_view kUsage =
    "Usage: sterling inspect MODEL [options]\n\n"
    "Reads headers and configuration, never the weights: what is stored in which precision, which KV cache the\n"
    "checkpoint wishes for and whether it brings scales, memory per token and per sequence, and findings.\n\n"
    "Examples:\n"
    "  sterling inspect ~/models/Qwen3.5-4B\n"
    "  sterling inspect model.gguf --json | jq '.weights[] | [.group, .format, .bits_per_weight]'\n\n";

std::string number(const std::optional<std::int64_t>& value) {
  return value ? fmt::format("{}", *value) : std::string("unknown");
}

// "26.90 B", the way people name models.
std::string short_count(const std::optional<std::int64_t>& value) {
  if (!value) return "unknown";
  const auto count = static_cast<double>(*value);
  if (count >= 1e9) return fmt::format("{:.2f} B", count / 1e9);
  if (count >= 1e6) return fmt::format("{:.2f} M", count / 1e6);
  return fmt::format("{}", *value);
}

std::string model_text(const lab::Inspection& inspection) {
  const lab::ModelDimensions& d = inspection.dimensions;
  std::string text = fmt::format("{}\n{}{} · {} · {}\n", inspection.path,
                                 d.architecture.empty() ? "unknown architecture" : d.architecture,
                                 d.model_type.empty() ? "" : fmt::format(" ({})", d.model_type), inspection.format,
                                 inspection.supported ? "supported" : "NOT SUPPORTED by this version");
  if (inspection.unsupported_reason) text += fmt::format("  {}\n", *inspection.unsupported_reason);
  text += fmt::format("\n{:<22}{} ({} full attention, {} linear attention{})\n", "layers", number(d.layers),
                      number(d.full_attention_layers), number(d.linear_attention_layers),
                      d.sliding_attention_layers.value_or(0) > 0
                          ? fmt::format(", {} sliding window", *d.sliding_attention_layers)
                          : "");
  text += fmt::format("{:<22}{} hidden, {} vocabulary, {} positions\n", "sizes", number(d.hidden_size),
                      number(d.vocab_size), number(d.max_position_embeddings));
  text += fmt::format("{:<22}{} heads, {} KV heads, head_dim {}\n", "attention", number(d.heads), number(d.kv_heads),
                      number(d.head_dim));
  if (d.experts != 0)
    text += fmt::format("{:<22}{}, {} per token\n", "experts", number(d.experts), number(d.experts_per_token));
  if (d.mtp_layers != 0) text += fmt::format("{:<22}{}\n", "MTP layers", number(d.mtp_layers));
  const lab::ParameterCounts& p = inspection.parameters;
  if (!p.total) return text + fmt::format("{:<22}unknown\n", "parameters");
  return text + fmt::format("{:<22}{} (text {}, MTP {}, vision {}); {} active per token\n", "parameters",
                            short_count(p.total), short_count(p.text), short_count(p.mtp), short_count(p.vision),
                            short_count(p.active_per_token));
}

std::string weights_text(const lab::Inspection& inspection) {
  if (!inspection.weights) return "\nno weights in this directory: counts follow from config.json\n";
  std::string text = fmt::format("\n{:<18}{:<20}{:>9}{:>12}{:>14}{:>13}\n", "weights", "format", "tensors",
                                 "parameters", "bytes", "bits/weight");
  for (const lab::WeightGroup& group : *inspection.weights) {
    const std::string bits =
        group.parameters.value_or(0) > 0
            ? fmt::format("{:.3f}", static_cast<double>(group.bytes) * 8.0 / static_cast<double>(*group.parameters))
            : std::string("-");
    text += fmt::format("{:<18}{:<20}{:>9}{:>12}{:>14}{:>13}\n", group.group, group.format, number(group.tensors),
                        short_count(group.parameters), format_bytes(group.bytes), bits);
  }
  return text + fmt::format("{:<18}{:<20}{:>9}{:>12}{:>14}\n", "total", "", "",
                            short_count(inspection.parameters.total), format_bytes(inspection.bytes->total));
}

std::string kv_text(const lab::Inspection& inspection) {
  const lab::KvCacheFacts& kv = inspection.kv_cache;
  std::string text = fmt::format(
      "\n{:<22}{}\n", "KV cache wish",
      kv.wish ? fmt::format("{} (Sterling uses {} unless you ask otherwise)", *kv.wish, kv.effective_by_default)
              : "none");
  for (const formats::KvWishSource& source : kv.sources) {
    text += fmt::format("{:<22}{}: {} = {}\n", "", source.file, source.key, boost::json::serialize(source.value));
  }
  if (kv.wish || kv.scales.found.value_or(0) > 0) {
    text += fmt::format("{:<22}{} expected, {} found", "K/V scales", kv.scales.expected, number(kv.scales.found));
    if (kv.scales.min) text += fmt::format(", from {} to {}", *kv.scales.min, *kv.scales.max);
    text += "\n";
  }
  if (const auto& bytes = inspection.kv_bytes_per_token) {
    text += fmt::format("{:<22}{} B in bf16, {} B in fp8_e4m3, {} B in fp32\n", "KV per token", bytes->bf16,
                        bytes->fp8_e4m3, bytes->fp32);
  } else {
    text += fmt::format("{:<22}unknown\n", "KV per token");
  }
  if (inspection.state_bytes_per_sequence != 0) {
    text += fmt::format("{:<22}{}\n", "state per sequence",
                        inspection.state_bytes_per_sequence
                            ? fmt::format("{} B ({})", *inspection.state_bytes_per_sequence,
                                          format_bytes(*inspection.state_bytes_per_sequence))
                            : "unknown");
  }
  return text;
}

std::string lint_text(const lab::Inspection& inspection) {
  std::string text;
  for (const lab::LintFinding& finding : inspection.lint) {
    if (finding.message == inspection.unsupported_reason) continue;  // stands at the top
    text += fmt::format("{}{:<8} {}  {}\n", text.empty() ? "\n" : "", lab::lint_severity_name(finding.severity),
                        finding.code, finding.message);
  }
  return text;
}

}  // namespace

int run_inspect(const Invocation& invocation) {
  if (config::asks_for_help(invocation.args)) {
    print_out(std::string(kUsage) + config::help_text(kSchema));
    return kExitOk;
  }
  auto settings = config::resolve(kSchema, {invocation.args, {}, {}});
  if (!settings) return report_error("inspect", settings.error(), false);
  const bool json = settings->boolean("json");
  const std::string model = settings->text("model");
  if (model.empty()) {
    return report_error("inspect",
                        make_error(ErrorCode::kInvalidArgument,
                                   "inspect needs a MODEL: a directory, a .gguf file or a hub id", "MODEL"),
                        json);
  }
  const auto resolved = resolve_model(model, invocation);
  if (!resolved) return report_error("inspect", resolved.error(), json);
  const auto inspection = lab::inspect(resolved->path.string());
  if (!inspection) return report_error("inspect", inspection.error(), json);
  if (json) {
    print_out(boost::json::serialize(lab::inspection_json(*inspection)) + "\n");
  } else {
    print_out(model_text(*inspection) + weights_text(*inspection) + kv_text(*inspection) + lint_text(*inspection));
  }
  return kExitOk;
}

}  // namespace sterling::cli
