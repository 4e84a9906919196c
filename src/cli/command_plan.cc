// sterling plan MODEL: what fits, in how many bytes, on this machine or on named GPUs, under Sterling's rules or another engine's.
#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <utility>

#include <boost/json.hpp>
#include <fmt/format.h>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/hub_access.h"
#include "cli/maker_support.h"
#include "cli/plan_report.h"
#include "cli/plan_subject.h"
#include "config/nearest.h"
#include "config/report.h"
#include "config/resolver.h"
#include "plan/capacity.h"
#include "plan/engines/rules.h"
#include "plan/hardware.h"
#include "platform/host_limits.h"

namespace sterling::cli {
namespace {

using config::Setting;
using config::SettingType;

constexpr std::array kSettings{
    Setting{.key = "model",
            .type = SettingType::kPath,
            .help =
                "The checkpoint: a directory in Hugging Face layout (a config.json alone will do), a .gguf file, or a "
                "hub id in the local cache.",
            .placeholder = "MODEL",
            .positional = true},
    Setting{.key = "engine",
            .type = SettingType::kChoice,
            .default_text = "sterling",
            .help = "Whose rules divide the memory.",
            .placeholder = "NAME",
            .choices = {{{"sterling"}, {"sglang"}, {"vllm"}}}},
    Setting{
        .key = "tp",
        .type = SettingType::kInteger,
        .help = "Tensor-parallel ranks. Default: --gpus, else 1. With more ranks than KV heads each head is copied.",
        .placeholder = "N",
        .min = 1,
        .max = 4096,
        .aliases = {{{"--tp-size", "SGLang"}, {"--tensor-parallel-size", "vLLM"}}}},
    Setting{
        .key = "gpu", .type = SettingType::kText, .help = "A GPU by name; each rank has one.", .placeholder = "NAME"},
    Setting{.key = "gpus",
            .type = SettingType::kInteger,
            .help = "How many of them. More than --tp: each group of --tp is a replica of its own.",
            .placeholder = "N",
            .min = 1,
            .max = 65536},
    Setting{.key = "memory",
            .type = SettingType::kBytes,
            .help = "Memory of one rank. Default: this machine's, cut to the cgroup's limit and shared by the ranks.",
            .placeholder = "SIZE",
            .min = 1},
    Setting{
        .key = "kv_memory",
        .type = SettingType::kBytes,
        .help = "The KV pool of one rank alone. Without --memory or --gpu, sequences are counted without their state.",
        .placeholder = "SIZE",
        .min = 1},
    Setting{.key = "kv_cache_dtype",
            .type = SettingType::kText,
            .default_text = "auto",
            .help = "Stored type of K and V. auto means bf16; checkpoint takes what the metadata wishes.",
            .placeholder = "TYPE"},
    Setting{.key = "context",
            .type = SettingType::kText,
            .help = "A length in tokens to count sequences of (131072 or 128K), as often as wanted. One that does not "
                    "fit once makes fits false. Default: usual lengths up to the model's.",
            .placeholder = "N",
            .repeatable = true},
    Setting{.key = "max_num_seqs",
            .type = SettingType::kInteger,
            .help = "Sequences that run at once at most.",
            .placeholder = "N",
            .min = 1,
            .max = 1 << 20,
            .aliases = {{{"--max-running-requests", "SGLang"}}}},
    Setting{.key = "memory_fraction",
            .type = SettingType::kText,
            .help = "SGLang's mem_fraction_static, vLLM's gpu_memory_utilization.",
            .placeholder = "X",
            .aliases = {{{"--mem-fraction-static", "SGLang"}, {"--gpu-memory-utilization", "vLLM"}}}},
    Setting{.key = "workspace",
            .type = SettingType::kBytes,
            .help = "vLLM: peak activations and CUDA graphs, as its log reports them.",
            .placeholder = "SIZE"},
    Setting{.key = "radix_cache",
            .type = SettingType::kBoolean,
            .default_text = "true",
            .help = "SGLang: prefix cache on; a running sequence then holds several state slots."},
    Setting{.key = "explain",
            .type = SettingType::kBoolean,
            .default_text = "false",
            .help = "Every formula with its numbers in."},
    Setting{.key = "require_fit",
            .type = SettingType::kBoolean,
            .default_text = "false",
            .help = "Exit with 1 where it does not fit, with 4 where that can't be told."},
    kJson,
};
constexpr config::Schema kSchema{.command = "plan", .settings = kSettings};

constexpr std::string_view kUsage =
    "Usage: sterling plan MODEL [options]\n\n"
    "Weights, KV cache, recurrent state and workspace per rank; tokens, and sequences by context length, for each type "
    "of\n"
    "KV cache. Sizes take a number of bytes or a suffix (17.4GiB, 96GB).\n\n"
    "Examples:\n"
    "  sterling plan ~/models/Qwen3.5-397B-A17B-NVFP4 --gpu rtx-pro-6000 --gpus 8 --engine sglang\n"
    "  sterling plan Qwen3.5-35B-A3B --memory 64GiB --context 131072 --explain\n"
    "  sterling plan Qwen3.5-397B-A17B-NVFP4 --tp 8 --kv-memory 17.4GiB --json | jq .concurrency\n\n";

// Lengths that people ask about, up to the model's own.
constexpr std::array<std::int64_t, 4> kUsualContexts = {8192, 32768, 131072, 262144};

Error unknown_gpu(const std::string& name) {
  std::vector<std::pair<std::size_t, std::string_view>> near;
  std::string all;
  for (const plan::Device& device : plan::devices()) {
    near.emplace_back(config::edit_distance(name.substr(0, 64), device.name), device.name);
    all += fmt::format("{}{}", all.empty() ? "" : ", ", device.name);
  }
  std::stable_sort(near.begin(), near.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return make_error(
      ErrorCode::kInvalidArgument,
      fmt::format("no GPU is known as \"{}\"; nearest: {}, {}, {}. Known: {}. For any other: --memory SIZE",
                  name.substr(0, 64), near[0].second, near[1].second, near[2].second, all),
      "--gpu");
}

Expected<std::vector<std::int64_t>> read_contexts(const config::Settings& settings, std::int64_t model_length) {
  std::vector<std::int64_t> contexts;
  for (const std::string& text : settings.list("context")) {
    std::int64_t n = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, n);
    const bool thousands = rest + 1 == end && (*rest == 'k' || *rest == 'K');
    if (error != std::errc() || (rest != end && !thousands) || n < 1 || n > (std::int64_t{1} << 31)) {
      return make_error(
          ErrorCode::kInvalidArgument,
          fmt::format("\"{}\" is no length in tokens: a number from 1 to 2147483648, or 128K", text.substr(0, 64)),
          "--context");
    }
    contexts.push_back(thousands ? n * 1024 : n);
  }
  if (contexts.empty()) {
    for (const std::int64_t usual : kUsualContexts) {
      if (model_length == 0 || usual <= model_length) contexts.push_back(usual);
    }
    if (model_length > 0 && (contexts.empty() || contexts.back() != model_length)) contexts.push_back(model_length);
  }
  return contexts;
}

// The type of the KV cache: as stored by the engine, and for Sterling as the pair of types that its allocator takes.
struct KvChoice {
  plan::KvStorage storage;
  std::optional<plan::KvFormat> format;
};

std::vector<KvChoice> kv_choices(plan::Engine engine) {
  std::vector<KvChoice> choices;
  for (plan::KvStorage& storage : plan::kv_storages(engine)) {
    std::optional<plan::KvFormat> format;
    if (const auto type = plan::kv_type_from_name(storage.name)) format = plan::KvFormat{*type, *type};
    choices.push_back({std::move(storage), format});
  }
  return choices;
}

Expected<std::string> wanted_kv(std::string text, const PlanSubject& subject) {
  if (text == "checkpoint") {
    const auto& wish = subject.inspection.kv_cache.wish;
    if (wish) return *wish;
    return make_error(ErrorCode::kInvalidArgument, "the checkpoint's metadata wishes for no type of KV cache",
                      "--kv-cache-dtype");
  }
  // Other spellings of the same types; "auto" means bf16 here, whatever an engine makes of it.
  constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kAlso = {{{"auto", "bf16"},
                                                                                   {"bfloat16", "bf16"},
                                                                                   {"float32", "fp32"},
                                                                                   {"fp8", "fp8_e4m3"},
                                                                                   {"fp8_e4m3fn", "fp8_e4m3"},
                                                                                   {"float8_e4m3fn", "fp8_e4m3"},
                                                                                   {"float8_e5m2", "fp8_e5m2"}}};
  for (const auto& [other, canonical] : kAlso) {
    if (text == other) return std::string(canonical);
  }
  return text;
}

struct Request {
  plan::CapacityRequest capacity;
  KvChoice kv;
  std::vector<KvChoice> others;
  std::vector<std::string> notes;
  std::optional<std::int64_t> replicas;
  std::string gpu;
};

Status read_memory(const config::Settings& settings, Request& request) {
  plan::CapacityRequest& capacity = request.capacity;
  const auto tp = settings.optional_integer("tp");
  const auto gpus = settings.optional_integer("gpus");
  capacity.tp = static_cast<std::int32_t>(tp.value_or(std::min<std::int64_t>(gpus.value_or(1), 4096)));
  capacity.memory_bytes = settings.optional_integer("memory");
  capacity.kv_memory = settings.optional_integer("kv_memory");
  request.gpu = settings.text("gpu");
  if (!request.gpu.empty()) {
    if (capacity.memory_bytes) {
      return make_error(ErrorCode::kInvalidArgument, "--gpu names a memory already; give one of --gpu and --memory",
                        "--memory");
    }
    const plan::Device* device = plan::find_device(request.gpu);
    if (device == nullptr) return unknown_gpu(request.gpu);
    capacity.memory_bytes = device->memory_bytes;
    const std::int64_t count = gpus.value_or(capacity.tp);
    if (count % capacity.tp != 0) {
      return make_error(ErrorCode::kInvalidArgument,
                        fmt::format("{} GPUs can't be grouped by {} ranks", count, capacity.tp), "--gpus");
    }
    request.replicas = count / capacity.tp;
    request.notes.push_back(fmt::format(
        "{} x {}: {}{} as the driver reports it{}", count, device->product, format_bytes(device->memory_bytes),
        count > 1 ? " each" : "",
        *request.replicas > 1 ? fmt::format("; {} replicas, each with the figures below", *request.replicas) : ""));
  } else if (gpus) {
    return make_error(ErrorCode::kInvalidArgument, "--gpus needs --gpu NAME", "--gpus");
  }
  if (!capacity.memory_bytes && !capacity.kv_memory) {
    const auto limits = platform::read_host_limits();
    if (!limits) return limits.error();
    capacity.memory_bytes = static_cast<std::int64_t>(limits->memory_limit) / capacity.tp;
    const bool cgroup = limits->cgroup_memory_limit && *limits->cgroup_memory_limit == limits->memory_limit;
    request.notes.push_back(
        fmt::format("memory of this machine: {}, {}{}", format_bytes(static_cast<std::int64_t>(limits->memory_limit)),
                    cgroup ? "the cgroup's limit" : "all of it", capacity.tp > 1 ? ", shared by its ranks" : ""));
  }
  return {};
}

Status read_kv(const config::Settings& settings, const PlanSubject& subject, Request& request) {
  const std::string text = settings.text("kv_cache_dtype");
  const auto name = wanted_kv(text, subject);
  if (!name) return name.error();
  bool found = false;
  std::string accepted;
  for (KvChoice& choice : kv_choices(request.capacity.engine)) {
    accepted += fmt::format("{}{}", accepted.empty() ? "" : ", ", choice.storage.name);
    if (choice.storage.name == *name) {
      request.kv = std::move(choice);
      found = true;
    } else {
      request.others.push_back(std::move(choice));
    }
  }
  if (!found) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("{} has no KV cache of type \"{}\"; accepted: auto, {}, checkpoint",
                                  plan::engine_name(request.capacity.engine), name->substr(0, 64), accepted),
                      "--kv-cache-dtype");
  }
  const auto& wish = subject.inspection.kv_cache.wish;
  if (text == "auto" && wish && request.capacity.engine != plan::Engine::kSterling) {
    request.notes.push_back(
        fmt::format("the checkpoint's metadata wishes for {}: {} obeys it under --kv-cache-dtype auto; these figures "
                    "are for bf16, given by name",
                    *wish, plan::engine_name(request.capacity.engine)));
  }
  return {};
}

Expected<Request> read_request(const config::Settings& settings, const PlanSubject& subject) {
  Request request;
  plan::CapacityRequest& capacity = request.capacity;
  const std::string engine = settings.text("engine");
  for (const plan::Engine candidate : {plan::Engine::kSterling, plan::Engine::kSglang, plan::Engine::kVllm}) {
    if (engine == plan::engine_name(candidate)) capacity.engine = candidate;
  }
  const bool own = capacity.engine == plan::Engine::kSterling;
  if (!subject.inspection.supported) {
    if (own && subject.inspection.unsupported_reason) {
      request.notes.push_back(fmt::format("Sterling does not run this model ({}): these are the figures it would have",
                                          *subject.inspection.unsupported_reason));
    }
  }
  if (Status status = read_memory(settings, request); !status.ok()) return status.error();
  if (Status status = read_kv(settings, subject, request); !status.ok()) return status.error();
  capacity.shape = subject.shape;
  capacity.spec = subject.spec ? &*subject.spec : nullptr;
  auto contexts = read_contexts(settings, subject.shape.max_position_embeddings);
  if (!contexts) return contexts.error();
  capacity.contexts = std::move(*contexts);
  capacity.contexts_asked = !settings.list("context").empty();
  for (const std::int64_t context : capacity.contexts) {
    if (subject.shape.max_position_embeddings > 0 && context > subject.shape.max_position_embeddings) {
      request.notes.push_back(fmt::format("{} tokens are beyond the {} positions that the model was made for", context,
                                          subject.shape.max_position_embeddings));
    }
  }
  capacity.max_num_seqs = settings.optional_integer("max_num_seqs");
  capacity.radix_cache = settings.boolean("radix_cache");
  if (const auto text = settings.optional_text("memory_fraction")) {
    double fraction = 0;
    const auto [rest, error] = std::from_chars(text->data(), text->data() + text->size(), fraction);
    if (error != std::errc() || rest != text->data() + text->size()) {
      return make_error(ErrorCode::kInvalidArgument,
                        fmt::format("\"{}\" is no number between 0 and 1", text->substr(0, 64)), "--memory-fraction");
    }
    capacity.memory_fraction = fraction;
  }
  capacity.workspace_bytes = settings.optional_integer("workspace");
  RankWeights weights = rank_weights(subject, capacity.engine, capacity.tp);
  capacity.weights_bytes = weights.bytes;
  request.notes.push_back(std::move(weights.assumption));
  if (own && !capacity.workspace_bytes) {
    const auto workspace = own_workspace(subject, capacity.max_num_seqs.value_or(plan::kDefaultMaxSequences));
    if (!workspace) return workspace.error();
    if (*workspace) {
      capacity.workspace_bytes = (**workspace + capacity.tp - 1) / capacity.tp;
      request.notes.push_back(fmt::format("workspace of this machine's threads and kernels, 512 tokens a step{}",
                                          capacity.tp > 1 ? "; ranks are of one process and share it" : ""));
    } else {
      request.notes.emplace_back("workspace is not known and counted as 0");
    }
  }
  return request;
}

Expected<PlanReport> make_report(const config::Settings& settings, const Invocation& invocation) {
  const std::string model = settings.text("model");
  if (model.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "plan needs a MODEL: a directory, a .gguf file or a hub id",
                      "MODEL");
  }
  const auto resolved = resolve_model(model, invocation);
  if (!resolved) return resolved.error();
  auto checkpoint = formats::Checkpoint::open(resolved->path);
  if (!checkpoint) return checkpoint.error();
  const PlanSubject subject = read_plan_subject(*checkpoint);
  auto request = read_request(settings, subject);
  if (!request) return request.error();
  PlanReport report;
  report.path = checkpoint->path();
  report.architecture = subject.inspection.dimensions.architecture;
  report.engine = request->capacity.engine;
  report.tp = request->capacity.tp;
  report.replicas = request->replicas;
  report.notes = std::move(request->notes);
  report.explain = settings.boolean("explain");
  auto chosen = plan::plan_capacity(request->capacity, request->kv.storage, request->kv.format);
  if (!chosen) return chosen.error();
  report.chosen = std::move(*chosen);
  for (const KvChoice& other : request->others) {
    auto capacity = plan::plan_capacity(request->capacity, other.storage, other.format);
    if (!capacity) return capacity.error();
    report.alternatives.push_back(std::move(*capacity));
  }
  return report;
}

}  // namespace

int run_plan(const Invocation& invocation) {
  if (config::asks_for_help(invocation.args)) {
    print_out(std::string(kUsage) + config::help_text(kSchema));
    return kExitOk;
  }
  auto settings = config::resolve(kSchema, {invocation.args, {}, {}});
  if (!settings) return report_error("plan", settings.error(), false);
  const bool json = settings->boolean("json");
  const auto report = make_report(*settings, invocation);
  if (!report) return report_error("plan", report.error(), json);
  print_out(json ? boost::json::serialize(plan_json(*report)) + "\n" : plan_text(*report));
  if (!settings->boolean("require_fit")) return kExitOk;
  if (!report->chosen.fits) return kExitUndetermined;
  return *report->chosen.fits ? kExitOk : kExitFailure;
}

}  // namespace sterling::cli
