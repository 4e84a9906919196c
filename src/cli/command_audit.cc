// sterling audit MODEL: what each precision choice costs. sterling audit --url A --url B: how far two servers are apart.
#include <array>

#include <boost/json.hpp>
#include <fmt/format.h>

#include "cli/audit_model.h"
#include "cli/audit_servers.h"
#include "cli/command.h"
#include "cli/common_settings.h"
#include "cli/console.h"
#include "cli/output_file.h"
#include "cli/terminal.h"
#include "config/report.h"
#include "config/resolver.h"

namespace sterling::cli {
namespace {

using config::Effect;
using config::Setting;
using config::SettingType;

constexpr std::array kSettings{
    kModelArgument,
    Setting{.key = "prompts",
            .type = SettingType::kPath,
            .help = "What the model sees in use: JSONL with tokens, text, prompt or messages per line, or plain text.",
            .placeholder = "FILE"},
    Setting{.key = "choice",
            .effect = Effect::kResults,
            .help = "Measure this choice alone; may be given several times. An unknown name lists all.",
            .placeholder = "NAME",
            .repeatable = true},
    Setting{.key = "kv_scales",
            .type = SettingType::kPath,
            .effect = Effect::kResults,
            .help = "K/V scales for scaled FP8, instead of the checkpoint's: what `sterling calibrate` writes.",
            .placeholder = "FILE"},
    Setting{.key = "activations",
            .type = SettingType::kChoice,
            .default_text = "auto",
            .effect = Effect::kResults,
            .help = "Where inputs of products are rounded, as GPU engines do for W8A8 and W4A4. quantised: products "
                    "with quantised "
                    "weights. all-linear: every large product. auto: the first, or where there are none the second.",
            .placeholder = "WHERE",
            .choices = {{{"auto"}, {"quantised"}, {"quantized", "quantised"}, {"all-linear"}, {"none"}}}},
    Setting{.key = "weights",
            .effect = Effect::kResults,
            .help = "Also measure the model quantised to nvfp4, fp8 or fp8-block; may be given several times.",
            .placeholder = "FORMAT",
            .repeatable = true},
    Setting{.key = "context",
            .type = SettingType::kInteger,
            .default_text = "0",
            .effect = Effect::kResults,
            .help = "Tokens per prompt at most; plain text is cut into pieces of it. 0: what the model was made for.",
            .placeholder = "N",
            .max = 1 << 30},
    Setting{.key = "max_tokens",
            .type = SettingType::kInteger,
            .default_text = "0",
            .effect = Effect::kResults,
            .help = "Of all prompts together; 0: all there are.",
            .placeholder = "N"},
    Setting{.key = "greedy",
            .type = SettingType::kInteger,
            .default_text = "64",
            .effect = Effect::kResults,
            .help = "Tokens generated after each prompt, to find the first that differs.",
            .placeholder = "N",
            .max = 65536},
    Setting{.key = "chunk",
            .type = SettingType::kInteger,
            .default_text = "256",
            .effect = Effect::kSpeed,
            .help = "Tokens of a step at most. Logits of so many are held twice.",
            .placeholder = "N",
            .min = 1,
            .max = 65536},
    Setting{.key = "url",
            .help = "Given twice: compare two running servers, the first being the reference.",
            .placeholder = "URL",
            .repeatable = true},
    Setting{
        .key = "model_name", .help = "Of the servers. Without it: the first that each lists.", .placeholder = "NAME"},
    Setting{.key = "api_key",
            .help = "Key of the servers. Command lines are visible to other users: prefer the environment.",
            .placeholder = "KEY",
            .secret = true},
    Setting{.key = "samples",
            .type = SettingType::kInteger,
            .default_text = "8",
            .effect = Effect::kResults,
            .help = "With --url: places in each prompt where both servers go on.",
            .placeholder = "N",
            .min = 1,
            .max = 4096},
    Setting{.key = "top",
            .type = SettingType::kInteger,
            .default_text = "20",
            .effect = Effect::kResults,
            .help = "With --url: most probable tokens asked for per step; servers have limits.",
            .placeholder = "N",
            .min = 1,
            .max = 1000},
    Setting{.key = "state",
            .type = SettingType::kPath,
            .help = "Where finished work is kept, so that a stopped audit goes on. Default: the cache folder, until it "
                    "is finished.",
            .placeholder = "FILE"},
    Setting{.key = "fresh",
            .type = SettingType::kBoolean,
            .default_text = "false",
            .help = "Start anew, whatever the state file holds."},
    Setting{.key = "html",
            .type = SettingType::kPath,
            .help = "Also write a report with plots, one file.",
            .placeholder = "FILE"},
    Setting{.key = "force",
            .type = SettingType::kBoolean,
            .default_text = "false",
            .help = "Replace the file of --html if it exists."},
    kIsaSetting,
    kThreadsSetting,
    kJsonSetting,
};
constexpr config::Schema kSchema{.command = "audit", .settings = kSettings};

// Settings of one of the two kinds of audit; given for the other they would be lost without a word.
constexpr std::array<std::string_view, 10> kModelKeys{"choice",     "kv_scales", "activations", "weights", "context",
                                                      "max_tokens", "chunk",     "state",       "fresh",   "isa"};
constexpr std::array<std::string_view, 4> kServerKeys{"model_name", "api_key", "samples", "top"};

constexpr std::string_view kUsage =
    "Usage: sterling audit MODEL --prompts FILE [options]\n"
    "       sterling audit --url A --url B --prompts FILE [options]\n\n"
    "Measures what each precision choice costs on your prompts, against FP32 products with K and V in FP32: divergence "
    "of the next-token\n"
    "distributions, changed tokens, first difference of greedy text, perplexity, by depth of context; KV cache, "
    "products, activations and\n"
    "weights one at a time, and what GPU engines make of the checkpoint. Or how far two running servers are apart.\n\n"
    "Examples:\n"
    "  sterling audit ~/models/Qwen3.5-4B --prompts traffic.jsonl --html audit.html\n"
    "  sterling audit ~/models/Qwen3.5-4B --prompts book.txt --choice 'kv fp8_e4m3 at 1.0' --choice 'kv bf16'\n"
    "  sterling audit --url http://127.0.0.1:8000 --url http://127.0.0.1:30000 --prompts traffic.jsonl\n\n";

Error wrong(std::string_view flag, std::string message) {
  return make_error(ErrorCode::kInvalidArgument, fmt::format("{}: {}", flag, message), std::string(flag));
}

Status check_request(const config::Settings& settings) {
  const std::vector<std::string> urls = settings.list("url");
  if (settings.text("model").empty() == urls.empty()) {
    return wrong("MODEL", "audit needs a MODEL (a directory, a .gguf file or a hub id), or --url twice, not both");
  }
  if (!urls.empty() && urls.size() != 2) {
    return wrong("--url", fmt::format("found {}; accepted: two, the reference and the other", urls.size()));
  }
  if (settings.text("prompts").empty()) {
    return wrong("--prompts", "audit needs prompts like those the model sees: what precision costs depends on them");
  }
  const auto refuse_others = [&](std::span<const std::string_view> keys, std::string_view where) -> Status {
    for (const std::string_view key : keys) {
      if (settings.at(key).origin != config::Origin::kFlag) continue;
      return wrong(config::flag_name(*config::find_setting(kSchema, key)), fmt::format("goes with {}", where));
    }
    return {};
  };
  if (Status status = urls.empty() ? refuse_others(kServerKeys, "--url") : refuse_others(kModelKeys, "a MODEL");
      !status) {
    return status;
  }
  if (!urls.empty() && settings.integer("greedy") == 0)
    return wrong("--greedy", "0: two servers are compared by what they generate");
  if (const auto html = settings.optional_text("html")) return check_output(*html, "--html", settings.boolean("force"));
  return {};
}

Expected<ChoiceWishes> read_wishes(const config::Settings& settings) {
  ChoiceWishes wishes;
  wishes.kv_scales_file = settings.optional_text("kv_scales");
  wishes.activations = settings.text("activations");
  wishes.only = settings.list("choice");
  for (const std::string& name : settings.list("weights")) {
    auto target = lab::parse_weight_target(name);
    if (!target || *target == lab::WeightTarget::kBf16) {
      return wrong("--weights", fmt::format("found '{}'; accepted: nvfp4, fp8, fp8-block", name));
    }
    if (std::find(wishes.weights.begin(), wishes.weights.end(), *target) == wishes.weights.end())
      wishes.weights.push_back(*target);
  }
  return wishes;
}

Expected<lab::AuditReport> run_model(const config::Settings& settings, const Invocation& invocation,
                                     const InterruptWatch& watch) {
  auto wishes = read_wishes(settings);
  if (!wishes) return wishes.error();
  AuditModelOptions options;
  options.model = settings.text("model");
  options.prompts = settings.text("prompts");
  options.context = settings.integer("context");
  options.max_tokens = settings.integer("max_tokens");
  options.greedy = static_cast<std::int32_t>(settings.integer("greedy"));
  options.chunk = static_cast<std::int32_t>(settings.integer("chunk"));
  options.wishes = std::move(*wishes);
  options.isa = settings.optional_text("isa");
  options.threads = static_cast<std::size_t>(settings.integer("threads"));
  options.state = settings.optional_text("state");
  options.fresh = settings.boolean("fresh");
  ProgressBar bar("auditing");
  options.progress = [&bar](std::int64_t done, std::int64_t total) { bar.update(done, total); };
  options.stopped = [&watch] { return watch.pending(); };
  return audit_model(options, invocation);
}

Expected<lab::AuditReport> run_servers(const config::Settings& settings, const InterruptWatch& watch) {
  AuditServersOptions options;
  const std::vector<std::string> urls = settings.list("url");
  options.reference = urls[0];
  options.other = urls[1];
  options.prompts = settings.text("prompts");
  options.model = settings.optional_text("model_name");
  options.api_key = settings.optional_text("api_key");
  options.samples = static_cast<std::int32_t>(settings.integer("samples"));
  options.steps = static_cast<std::int32_t>(settings.integer("greedy"));
  options.top = static_cast<std::int32_t>(settings.integer("top"));
  ProgressBar bar("comparing");
  options.progress = [&bar](std::int64_t done, std::int64_t total) { bar.update(done, total); };
  options.stopped = [&watch] { return watch.pending(); };
  return audit_servers(options);
}

// The key may come from the environment; nothing else of an audit does.
std::vector<std::pair<std::string, std::string>> key_from(const Invocation& invocation) {
  std::vector<std::pair<std::string, std::string>> taken;
  for (const auto& entry : invocation.environment) {
    if (entry.first == "STERLING_API_KEY") taken.push_back(entry);
  }
  return taken;
}

}  // namespace

int run_audit(const Invocation& invocation) {
  if (config::asks_for_help(invocation.args)) {
    print_out(std::string(kUsage) + config::help_text(kSchema));
    return kExitOk;
  }
  auto settings = config::resolve(kSchema, {invocation.args, key_from(invocation), {}});
  if (!settings) return report_error("audit", settings.error(), false);
  const bool json = settings->boolean("json");
  if (Status status = check_request(*settings); !status) return report_error("audit", status.error(), json);
  const InterruptWatch watch;
  auto report = settings->list("url").empty() ? run_model(*settings, invocation, watch) : run_servers(*settings, watch);
  if (!report) return report_error("audit", report.error(), json);
  const auto html = settings->optional_text("html");
  if (html) {
    if (Status status = write_output(*html, "--html", lab::audit_html(*report)); !status) {
      return report_error("audit", status.error(), json);
    }
  }
  print_out(json ? boost::json::serialize(lab::audit_json(*report)) + "\n" : lab::audit_text(*report));
  if (html && !json) print_out(fmt::format("\n{} written\n", *html));
  return kExitOk;
}

}  // namespace sterling::cli
