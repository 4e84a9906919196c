#include "config/serve_settings.h"

#include <array>
#include <limits>

namespace sterling::config {
namespace {

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMiB = std::int64_t{1} << 20;

// The product's names first, then other engines' words for them. llama-server's quantised types (q8_0, q4_0, …) have no counterpart.
constexpr std::array<Choice, 16> kKvChoices{{{"bf16"},
                                             {"fp32"},
                                             {"fp8_e4m3"},
                                             {"fp8_e5m2"},
                                             {"fp8_e4m3_token"},
                                             {"checkpoint"},
                                             {"auto", "bf16"},
                                             {"bfloat16", "bf16"},
                                             {"float32", "fp32"},
                                             {"f32", "fp32"},
                                             {"fp8", "fp8_e4m3"},
                                             {"fp8_e4m3fn", "fp8_e4m3"},
                                             {"float8_e4m3fn", "fp8_e4m3"},
                                             {"float8_e5m2", "fp8_e5m2"}}};

constexpr std::array kSettings = {
    Setting{.key = "model",
            .type = SettingType::kPath,
            .effect = Effect::kResults,
            .help = "The checkpoint: a directory in Hugging Face layout, a .gguf file, or a hub id in the local cache.",
            .placeholder = "MODEL",
            .aliases = {{{"-m", "llama-server"}, {"--model-path", "SGLang"}}},
            .positional = true},
    Setting{.key = "served_model_name",
            .help = "Name of the model in the API. Without it: the hub id, or the last part of the model's path.",
            .placeholder = "NAME",
            .aliases = {{{"-a", "llama-server"}, {"--alias", "llama-server"}}}},
    Setting{.key = "config",
            .type = SettingType::kPath,
            .help = "Configuration file: one JSON object of settings, or lines `key = value`.",
            .placeholder = "FILE"},

    // --- interface
    Setting{.key = "host",
            .default_text = "127.0.0.1",
            .help = "Address to listen on. Anything but loopback is open to the network: set an API key with it.",
            .placeholder = "ADDRESS"},
    Setting{.key = "port",
            .type = SettingType::kInteger,
            .default_text = "8000",
            .help = "Port to listen on; 0 takes a free one and the ready line names it.",
            .placeholder = "N",
            .max = 65535},
    Setting{.key = "api_key",
            .help =
                "Key that requests must bring (`Authorization: Bearer KEY`). Command lines are visible to other users: "
                "prefer the file or the environment.",
            .placeholder = "KEY",
            .secret = true},
    Setting{.key = "api_key_file",
            .type = SettingType::kPath,
            .help = "File with accepted API keys, one per line; empty lines and lines that start with # are skipped.",
            .placeholder = "FILE"},
    Setting{.key = "chat_template",
            .type = SettingType::kPath,
            .effect = Effect::kResults,
            .help = "File with a chat template (Jinja) to use instead of the checkpoint's.",
            .placeholder = "FILE",
            .aliases = {{{"--chat-template-file", "llama-server"}}}},
    Setting{.key = "log_level",
            .type = SettingType::kChoice,
            .default_text = "info",
            .help = "Least severe messages to log.",
            .placeholder = "LEVEL",
            .choices = {{{"debug"}, {"info"}, {"warning"}, {"error"}, {"warn", "warning"}}}},
    Setting{.key = "log_format",
            .type = SettingType::kChoice,
            .default_text = "text",
            .help = "Log lines as text or as one JSON object each.",
            .placeholder = "FORMAT",
            .choices = {{{"text"}, {"json"}}}},

    // --- results
    Setting{.key = "compute",
            .type = SettingType::kChoice,
            .default_text = "bf16",
            .effect = Effect::kResults,
            .help =
                "Type of matrix products: bf16 (activations rounded once at entry, FP32 sums), or fp32 (the in-tree "
                "reference: exact weights, several times slower).",
            .placeholder = "TYPE",
            .choices = {{{"bf16"}, {"fp32"}}}},
    Setting{.key = "kv_cache_dtype",
            .type = SettingType::kChoice,
            .default_text = "bf16",
            .effect = Effect::kResults,
            .help = "Stored type of attention keys and values. auto means bf16, whatever the checkpoint wishes; "
                    "checkpoint obeys its wish. "
                    "fp8_e4m3 and fp8_e5m2 need scales; fp8_e4m3_token keeps one per token and head and needs none.",
            .placeholder = "TYPE",
            .choices = kKvChoices},
    Setting{.key = "kv_cache_dtype_k",
            .type = SettingType::kChoice,
            .effect = Effect::kResults,
            .help = "Stored type of keys where it differs from --kv-cache-dtype.",
            .placeholder = "TYPE",
            .choices = kKvChoices,
            .aliases = {{{"--cache-type-k", "llama-server"}, {"-ctk", "llama-server"}}}},
    Setting{.key = "kv_cache_dtype_v",
            .type = SettingType::kChoice,
            .effect = Effect::kResults,
            .help = "Stored type of values where it differs from --kv-cache-dtype.",
            .placeholder = "TYPE",
            .choices = kKvChoices,
            .aliases = {{{"--cache-type-v", "llama-server"}, {"-ctv", "llama-server"}}}},
    Setting{.key = "kv_scales",
            .type = SettingType::kPath,
            .effect = Effect::kResults,
            .help = "File with K/V scales, instead of the checkpoint's: what `sterling calibrate` writes, or the JSON "
                    "that vLLM and SGLang read.",
            .placeholder = "FILE",
            .aliases = {{{"--quantization-param-path", "vLLM and SGLang"}}}},
    Setting{.key = "accept_unscaled_kv",
            .type = SettingType::kBoolean,
            .default_text = "false",
            .effect = Effect::kResults,
            .help = "Run an FP8 KV cache with scales of 1.0 where none were measured. It stays visible in "
                    "/v1/precision, /ready and /metrics."},
    Setting{
        .key = "dry_run",
        .type = SettingType::kBoolean,
        .default_text = "false",
        .help = "Resolve precision from the checkpoint's headers, print the table and exit. No weights are loaded."},
    Setting{.key = "seed",
            .type = SettingType::kInteger,
            .effect = Effect::kResults,
            .help = "Seed of requests that bring none. auto: each gets its own.",
            .placeholder = "N",
            .word = "auto",
            .aliases = {{{"--random-seed", "SGLang"}, {"-s", "llama-server"}}}},
    Setting{.key = "strict",
            .type = SettingType::kBoolean,
            .default_text = "false",
            .help = "Refuse to start when any precision that was asked for differs from the effective one."},

    // --- speed
    Setting{.key = "isa",
            .type = SettingType::kChoice,
            .effect = Effect::kSpeed,
            .help = "Kernel tier. auto takes the fastest one measured at start; a tier this machine lacks is an error.",
            .placeholder = "TIER",
            .word = "auto",
            .choices = {{{"scalar"}, {"avx2"}, {"avx512"}, {"avx512bf16"}}}},
    Setting{.key = "threads",
            .type = SettingType::kInteger,
            .default_text = "0",
            .effect = Effect::kSpeed,
            .help = "Compute threads. 0: one per physical core this process may use, within the cgroup's CPU quota.",
            .placeholder = "N",
            .max = 4096,
            .aliases = {{{"-t", "llama-server"}}}},
    Setting{.key = "pin_threads",
            .type = SettingType::kBoolean,
            .default_text = "false",
            .effect = Effect::kSpeed,
            .help = "Tie each compute thread to one CPU of the affinity mask."},
    Setting{.key = "max_num_batched_tokens",
            .type = SettingType::kInteger,
            .default_text = "512",
            .effect = Effect::kSpeed,
            .help =
                "Tokens computed per step, over all requests: larger chunks prefill faster, smaller ones keep running "
                "answers smooth.",
            .placeholder = "N",
            .min = 1,
            .max = 1 << 20,
            .aliases = {{{"--chunked-prefill-size", "SGLang"},
                         {"-ub", "llama-server"},
                         {"--ubatch-size", "llama-server"}}}},

    // --- capacity
    Setting{
        .key = "max_model_len",
        .type = SettingType::kInteger,
        .effect = Effect::kCapacity,
        .help = "Longest sequence, prompt and answer together, in tokens, per request. auto: what the model was made "
                "for, as far as the KV memory holds it.",
        .placeholder = "N",
        .word = "auto",
        .min = 1,
        .max = 1 << 30,
        .aliases = {{{"--context-length", "SGLang"}, {"-c", "llama-server"}, {"--ctx-size", "llama-server"}}}},
    Setting{.key = "kv_cache_memory",
            .type = SettingType::kBytes,
            .effect = Effect::kCapacity,
            .help = "Memory for the KV pool. auto: a share of what this process may still use.",
            .placeholder = "SIZE",
            .word = "auto",
            .min = kMiB,
            .aliases = {{{"--kv-cache-memory-bytes", "vLLM"}}}},
    Setting{
        .key = "max_num_seqs",
        .type = SettingType::kInteger,
        .default_text = "32",
        .effect = Effect::kCapacity,
        .help = "Requests computed at the same time; more wait in the queue.",
        .placeholder = "N",
        .min = 1,
        .max = 4096,
        .aliases = {{{"--max-running-requests", "SGLang"}, {"-np", "llama-server"}, {"--parallel", "llama-server"}}}},
    Setting{.key = "max_queue",
            .type = SettingType::kInteger,
            .default_text = "256",
            .effect = Effect::kCapacity,
            .help = "Requests that may wait; the next is refused with 429 and Retry-After.",
            .placeholder = "N",
            .max = 1 << 20,
            .aliases = {{{"--max-queued-requests", "SGLang"}}}},
    Setting{.key = "max_body_size",
            .type = SettingType::kBytes,
            .default_text = "32MiB",
            .effect = Effect::kCapacity,
            .help = "Largest request body; above it 413.",
            .placeholder = "SIZE",
            .min = 1024,
            .max = 1024 * kMiB},
    Setting{.key = "max_connections",
            .type = SettingType::kInteger,
            .default_text = "1024",
            .effect = Effect::kCapacity,
            .help = "Open connections; the next one gets 503 with Retry-After.",
            .placeholder = "N",
            .min = 1,
            .max = 1 << 20},
    Setting{.key = "header_timeout",
            .type = SettingType::kSeconds,
            .default_text = "30",
            .effect = Effect::kCapacity,
            .help = "Time a client has to send a whole request before the connection is closed.",
            .placeholder = "TIME",
            .min = 1,
            .max = 86400},
    Setting{.key = "request_timeout",
            .type = SettingType::kSeconds,
            .effect = Effect::kCapacity,
            .help = "Longest time one request may take from arrival to its last token. none: no limit.",
            .placeholder = "TIME",
            .word = "none",
            .min = 1,
            .aliases = {{{"-to", "llama-server"}, {"--timeout", "llama-server"}}}},
    Setting{.key = "drain_timeout",
            .type = SettingType::kSeconds,
            .default_text = "30",
            .effect = Effect::kInterface,
            .help = "After SIGTERM: time that running requests get to finish before they are cut off.",
            .placeholder = "TIME",
            .max = 86400},
};

static_assert(kUnlimited == Setting{}.max);

constexpr std::array kForeign = {
    ForeignFlag{"--gpu-memory-utilization", "vLLM", "say what the KV pool gets: --kv-cache-memory SIZE"},
    ForeignFlag{"--mem-fraction-static", "SGLang", "say what the KV pool gets: --kv-cache-memory SIZE"},
    ForeignFlag{"--max-total-tokens", "SGLang", "say what the KV pool gets: --kv-cache-memory SIZE"},
    ForeignFlag{"--dtype", "vLLM and SGLang", "weights stay as stored; products: --compute bf16 or fp32"},
    ForeignFlag{"--quantization", "vLLM and SGLang", "the checkpoint says how its weights are stored"},
    ForeignFlag{"--tensor-parallel-size", "vLLM and SGLang", "one process computes on all its CPUs: --threads N"},
    ForeignFlag{"--tp", "SGLang", "one process computes on all its CPUs: --threads N"},
    ForeignFlag{"--tp-size", "SGLang", "one process computes on all its CPUs: --threads N"},
    ForeignFlag{"--n-gpu-layers", "llama-server", "this version computes on the CPU"},
    ForeignFlag{"--batch-size", "llama-server", "the tokens of one step: --max-num-batched-tokens N"},
    ForeignFlag{"--jinja", "llama-server", "chat templates are always rendered with Jinja"},
    ForeignFlag{"--trust-remote-code", "vLLM and SGLang", "no code of a checkpoint is ever run"},
};

std::optional<std::size_t> as_size(std::optional<std::int64_t> value) {
  return value ? std::optional(static_cast<std::size_t>(*value)) : std::nullopt;
}

Asked asked(const Settings& settings, std::string_view key) {
  const ResolvedValue& value = settings.at(key);
  Asked result{settings.optional_text(key).value_or(""), std::string(origin_name(value.origin))};
  if (!value.source.empty()) result.by += " " + value.source;
  return result;
}

}  // namespace

const Schema& serve_schema() {
  static constexpr Schema kSchema{.command = "serve", .settings = kSettings, .foreign = kForeign};
  return kSchema;
}

Expected<ServeOptions> serve_options(const Settings& s) {
  ServeOptions o;
  o.model = s.text("model");
  if (o.model.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "serve needs a MODEL: a directory, a .gguf file, or a hub id in the local cache", "MODEL");
  }
  o.served_model_name = s.optional_text("served_model_name");
  o.host = s.text("host");
  o.port = static_cast<std::uint16_t>(s.integer("port"));
  o.api_key = s.optional_text("api_key");
  o.api_key_file = s.optional_text("api_key_file");
  if (o.api_key && o.api_key_file) {
    return make_error(ErrorCode::kInvalidArgument,
                      "api_key (" + s.at("api_key").source + ") and api_key_file (" + s.at("api_key_file").source +
                          ") are both set; accepted: one of them",
                      s.at("api_key_file").source);
  }
  o.compute = asked(s, "compute");
  o.kv_cache_dtype = asked(s, "kv_cache_dtype");
  o.kv_cache_dtype_k = asked(s, "kv_cache_dtype_k");
  o.kv_cache_dtype_v = asked(s, "kv_cache_dtype_v");
  o.kv_scales = s.optional_text("kv_scales");
  o.accept_unscaled_kv = s.boolean("accept_unscaled_kv");
  o.dry_run = s.boolean("dry_run");
  o.seed = s.optional_integer("seed");
  o.chat_template = s.optional_text("chat_template");
  o.strict = s.boolean("strict");
  o.isa = s.optional_text("isa");
  o.threads = as_size(s.optional_integer("threads"));
  if (o.threads == std::size_t{0}) o.threads.reset();
  o.pin_threads = s.boolean("pin_threads");
  o.max_model_len = as_size(s.optional_integer("max_model_len"));
  o.kv_cache_memory = as_size(s.optional_integer("kv_cache_memory"));
  o.max_num_seqs = static_cast<std::size_t>(s.integer("max_num_seqs"));
  o.max_num_batched_tokens = static_cast<std::size_t>(s.integer("max_num_batched_tokens"));
  o.max_queue = static_cast<std::size_t>(s.integer("max_queue"));
  o.max_body_size = static_cast<std::size_t>(s.integer("max_body_size"));
  o.max_connections = static_cast<std::size_t>(s.integer("max_connections"));
  o.header_timeout = s.seconds("header_timeout");
  o.request_timeout = s.optional_seconds("request_timeout");
  o.drain_timeout = s.seconds("drain_timeout");
  o.log_level = s.text("log_level");
  o.log_format = s.text("log_format");
  return o;
}

}  // namespace sterling::config
