#include "cli/serving_host.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cli/console.h"
#include "cli/hub_access.h"
#include "cli/memory_ledger.h"
#include "cli/runtime.h"
#include "cli/serving_report.h"
#include "cli/version.h"
#include "engine/engine.h"
#include "formats/object_reader.h"
#include "server/server.h"
#include "serving/service.h"

namespace sterling::cli {
namespace {

// Members are destroyed in reverse order: sockets before service before engine before model.
class Host final : public ServingHost {
 public:
  const std::string& address() const override { return server->address(); }
  const std::string& model_name() const override { return service->model_names().front(); }
  std::size_t stop(std::chrono::milliseconds drain) override { return server->stop(drain); }

  Runtime runtime;
  std::unique_ptr<engine::Engine> engine;
  std::unique_ptr<serving::Service> service;
  std::unique_ptr<server::Server> server;
};

std::string default_name(const std::string& model) {
  const std::filesystem::path path = std::filesystem::path(model).lexically_normal();
  const std::string last = path.has_filename() ? path.filename().string() : path.parent_path().filename().string();
  return last.empty() ? model : last;
}

// Fields of generation_config.json that set how a request that says nothing is sampled.
Expected<serving::GenerationDefaults> read_defaults(const formats::Checkpoint& checkpoint) {
  serving::GenerationDefaults defaults;
  if (checkpoint.generation_config() == nullptr) return defaults;
  const formats::ObjectReader config(*checkpoint.generation_config(), "generation_config.json");
  defaults.temperature = static_cast<float>(config.number_or("temperature", 1.0, 0.0, 100.0));
  defaults.top_k = static_cast<std::int32_t>(config.integer_or("top_k", 0, -1, 1 << 24));
  defaults.top_k = std::max(defaults.top_k, 0);
  defaults.top_p = static_cast<float>(config.number_or("top_p", 1.0, 1e-6, 1.0));
  defaults.min_p = static_cast<float>(config.number_or("min_p", 0.0, 0.0, 1.0));
  defaults.repetition_penalty = static_cast<float>(config.number_or("repetition_penalty", 1.0, 1e-3, 100.0));
  if (Status status = config.status(); !status) return status.error();
  return defaults;
}

// Every id that ends a turn: config.json's, generation_config.json's, the tokenizer's eos, and ChatML's end of turn where the vocabulary
// has it (Qwen3.5's config.json names only <|endoftext|>).
Expected<std::vector<std::int32_t>> read_eos(const Runtime& runtime, const text::Tokenizer* tokenizer) {
  std::vector<std::int32_t> ids = runtime.model->spec().eos_token_ids;
  const formats::Checkpoint& checkpoint = *runtime.checkpoint;
  if (checkpoint.generation_config() != nullptr) {
    const formats::ObjectReader config(*checkpoint.generation_config(), "generation_config.json");
    for (const std::int64_t id : config.integer_or_list("eos_token_id", 0, runtime.model->spec().vocab_size - 1)) {
      ids.push_back(static_cast<std::int32_t>(id));
    }
    if (Status status = config.status(); !status) return status.error();
  }
  if (const formats::GgufTokenizerData* data = checkpoint.gguf_tokenizer()) {
    for (const auto& id : {data->eos_id, data->eot_id, data->eom_id}) {
      if (id) ids.push_back(static_cast<std::int32_t>(*id));
    }
  }
  if (tokenizer != nullptr) {
    if (const boost::json::object* config = checkpoint.tokenizer_config()) {
      const auto* eos = config->if_contains("eos_token");
      if (eos != nullptr && eos->is_object()) eos = eos->get_object().if_contains("content");
      if (eos != nullptr && eos->is_string()) {
        if (const auto id = tokenizer->token_to_id(std::string_view(eos->get_string()))) ids.push_back(*id);
      }
    }
    if (const auto id = tokenizer->token_to_id("<|im_end|>")) ids.push_back(*id);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

Expected<std::vector<std::string>> read_keys(const config::ServeOptions& options) {
  std::vector<std::string> keys;
  if (options.api_key) keys.push_back(*options.api_key);
  if (!options.api_key_file) return keys;
  std::ifstream file(*options.api_key_file);
  if (!file) {
    return make_error(ErrorCode::kNotFound, fmt::format("--api-key-file {}: cannot be read", *options.api_key_file),
                      "--api-key-file");
  }
  for (std::string line; std::getline(file, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty() && line[0] != '#') keys.push_back(line);
  }
  if (keys.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("--api-key-file {}: holds no key", *options.api_key_file), "--api-key-file");
  }
  return keys;
}

// A taken port is told before minutes of loading; the real bind comes after it and reports whatever else may be wrong.
Status check_port(const std::string& host, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (port == 0 || inet_pton(AF_INET, host == "localhost" ? "127.0.0.1" : host.c_str(), &address.sin_addr) != 1)
    return {};
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return {};
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const bool taken = bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 && errno == EADDRINUSE;
  close(fd);
  if (!taken) return {};
  return make_error(
      ErrorCode::kResourceExhausted,
      fmt::format("port {} on {} is in use by another process; choose another with --port, or --port 0 for a free one",
                  port, host),
      "--port");
}

// One token through the whole model: finite logits before anybody is told "ready".
Status try_model(model::Model& model) {
  const std::int32_t token = 0;
  const std::int32_t block = 0;
  const std::int32_t row = 0;
  SequenceSlice slice;
  slice.tokens = std::span(&token, 1);
  slice.block_table = std::span(&block, 1);
  slice.state_slot = model.limits().state_slots > 0 ? 0 : -1;
  slice.logit_rows = std::span(&row, 1);
  std::vector<float> logits(static_cast<std::size_t>(model.limits().vocab_size));
  if (Status status = model.forward(BatchView{std::span(&slice, 1)}, logits); !status) return status;
  if (std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); })) return {};
  return make_error(ErrorCode::kCorrupt,
                    "the model gives logits that are not finite on its first token; the weights are unusable");
}

std::chrono::milliseconds to_ms(double seconds) {
  return std::chrono::milliseconds(std::llround(seconds * 1000.0));
}

}  // namespace

Status find_model(config::ServeOptions& options, const Invocation& invocation) {
  auto resolved = resolve_model(options.model, invocation);
  if (!resolved) return resolved.error();
  if (resolved->repo && !options.served_model_name) options.served_model_name = resolved->repo->text();
  options.model = resolved->path.string();
  return {};
}

Expected<std::unique_ptr<ServingHost>> start_serving(const config::ServeOptions& options, std::string settings_json,
                                                     LogSink log) {
  if (Status status = check_port(options.host, options.port); !status) return status.error();
  auto keys = read_keys(options);
  if (!keys) return keys.error();
  auto host = std::make_unique<Host>();

  RuntimeOptions runtime;
  runtime.model = options.model;
  runtime.compute = options.compute.value == "fp32" ? backend::Compute::kFp32 : backend::Compute::kBf16;
  runtime.isa = options.isa;
  runtime.threads = options.threads;
  runtime.pin_threads = options.pin_threads;
  auto loaded = load_runtime(runtime);
  if (!loaded) return loaded.error();
  host->runtime = std::move(*loaded);

  auto pools = plan_pools(host->runtime, {options.max_model_len, options.kv_cache_memory, options.max_num_seqs,
                                          options.max_num_batched_tokens});
  if (!pools) return pools.error();
  if (Status status = host->runtime.model->configure(*pools); !status) return status.error();
  log_model(host->runtime, *pools, log);
  if (Status status = check_ledger(read_ledger(host->runtime, *pools), log); !status) return status.error();
  if (Status status = try_model(*host->runtime.model); !status) return status.error();

  serving::ServiceOptions service;
  service.model_names = {options.served_model_name.value_or(default_name(options.model))};
  auto tokenizer = load_tokenizer(*host->runtime.checkpoint);
  if (tokenizer) {
    service.tokenizer = *tokenizer;
    auto chat_template = load_chat_template(*host->runtime.checkpoint, *service.tokenizer, options.chat_template);
    if (!chat_template) return chat_template.error();
    service.chat_template = *chat_template;
    if (service.chat_template == nullptr)
      log(LogLevel::kWarning,
          "the checkpoint has no chat template: /v1/chat/completions is refused; give one with --chat-template");
  } else if (tokenizer.error().code == ErrorCode::kNotFound) {
    log(LogLevel::kWarning, fmt::format("{}: requests can only bring token ids", tokenizer.error().message));
  } else {
    return tokenizer.error();
  }
  auto defaults = read_defaults(*host->runtime.checkpoint);
  if (!defaults) return defaults.error();
  service.defaults = *defaults;
  auto eos = read_eos(host->runtime, service.tokenizer.get());
  if (!eos) return eos.error();
  service.eos_token_ids = *eos;
  service.vocab_size = host->runtime.model->limits().vocab_size;
  service.max_sequence_tokens = host->runtime.model->limits().max_sequence_tokens;
  if (options.seed) service.seed = static_cast<std::uint64_t>(*options.seed);

  engine::EngineOptions engine;
  engine.max_running = pools->max_batch_slices;
  engine.max_batch_tokens = pools->max_batch_tokens;
  engine.max_queue = static_cast<std::int32_t>(options.max_queue);
  host->engine = engine::make_engine(*host->runtime.model, engine);
  host->service = std::make_unique<serving::Service>(*host->engine, std::move(service));

  server::ServerOptions server;
  server.address = options.host;
  server.port = options.port;
  server.api_keys = std::move(*keys);
  server.version = kVersion;
  server.max_body_bytes = options.max_body_size;
  server.max_connections = options.max_connections;
  server.header_timeout = to_ms(options.header_timeout);
  if (options.request_timeout) server.request_timeout = to_ms(*options.request_timeout);
  server.server_info = [json = std::move(settings_json)] { return json; };
  server.log = log;
  auto started = server::Server::start(*host->service, std::move(server));
  if (!started) return started.error();
  host->server = std::move(*started);
  host->server->set_ready(true);
  log(LogLevel::kInfo,
      fmt::format("ready address=http://{} model={} kv_cache_dtype={} kv_scales=not_applicable "
                  "kv_tokens={} max_sequences={} manifest=none",
                  host->address(), host->model_name(), plan::kv_format_name(host->runtime.backend->kv_format()),
                  std::int64_t{pools->kv_blocks} * plan::kBlockTokens, pools->max_batch_slices));
  return std::unique_ptr<ServingHost>(std::move(host));
}

}  // namespace sterling::cli
