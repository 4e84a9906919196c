#include "cli/runtime.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "backend/cpu/cpu_backend.h"
#include "cli/console.h"
#include "cli/memory_ledger.h"
#include "kernels/dispatch.h"
#include "plan/engines/rules.h"
#include "plan/memory.h"
#include "platform/host_limits.h"
#include "platform/process_memory.h"

namespace sterling::cli {
namespace {

Expected<std::unique_ptr<platform::ThreadPool>> start_threads(const RuntimeOptions& options) {
  auto limits = platform::read_host_limits();
  if (!limits) return limits.error();
  platform::ThreadPool::Options pool;
  pool.threads = options.threads.value_or(limits->compute_threads);
  if (options.pin_threads) {
    pool.pin_cpus = limits->core_cpus.size() >= pool.threads ? limits->core_cpus : limits->affinity_cpus;
  }
  return platform::ThreadPool::create(std::move(pool));
}

text::GgufVocabulary to_vocabulary(const formats::GgufTokenizerData& data) {
  text::GgufVocabulary vocabulary;
  vocabulary.model = data.model;
  vocabulary.pre = data.pre;
  vocabulary.tokens = data.tokens;
  vocabulary.merges = data.merges;
  vocabulary.token_types.assign(data.token_types.begin(), data.token_types.end());
  vocabulary.scores = data.scores;
  const auto as_id = [](const std::optional<std::int64_t>& id) {
    return id ? std::optional<std::int32_t>(static_cast<std::int32_t>(*id)) : std::nullopt;
  };
  vocabulary.bos_id = as_id(data.bos_id);
  vocabulary.eos_id = as_id(data.eos_id);
  vocabulary.unk_id = as_id(data.unknown_id);
  vocabulary.pad_id = as_id(data.padding_id);
  vocabulary.add_bos = data.add_bos;
  vocabulary.add_eos = data.add_eos;
  return vocabulary;
}

// The text of a special token entry: a string, or an object with "content" (HF tokenizer_config.json has both forms).
std::optional<std::string> token_text(const boost::json::value& value) {
  if (value.is_string()) return std::string(value.get_string());
  if (value.is_object()) {
    const auto* content = value.get_object().if_contains("content");
    if (content != nullptr && content->is_string()) return std::string(content->get_string());
  }
  return std::nullopt;
}

text::ChatTemplate::SpecialTokens special_tokens(const formats::Checkpoint& checkpoint,
                                                 const text::Tokenizer& tokenizer) {
  text::ChatTemplate::SpecialTokens tokens;
  const auto take = [&tokens](const boost::json::object* source) {
    if (source == nullptr) return;
    for (const auto& [key, value] : *source) {
      if (!std::string_view(key).ends_with("_token")) continue;
      if (auto text = token_text(value)) tokens[std::string(key)] = std::move(*text);
    }
  };
  take(checkpoint.special_tokens_map());
  take(checkpoint.tokenizer_config());
  if (const formats::GgufTokenizerData* data = checkpoint.gguf_tokenizer()) {
    const auto add = [&](const char* name, const std::optional<std::int64_t>& id) {
      if (!id) return;
      if (const auto token = tokenizer.id_to_token(static_cast<std::int32_t>(*id))) tokens[name] = std::string(*token);
    };
    add("bos_token", data->bos_id);
    add("eos_token", data->eos_id);
    add("unk_token", data->unknown_id);
    add("pad_token", data->padding_id);
  }
  return tokens;
}

Expected<std::string> read_text_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return make_error(ErrorCode::kNotFound, fmt::format("{}: cannot be read", path), path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

Expected<Runtime> open_runtime(const RuntimeOptions& options) {
  Runtime runtime;
  auto checkpoint = formats::Checkpoint::open(options.model);
  if (!checkpoint) return checkpoint.error();
  runtime.checkpoint = std::make_unique<formats::Checkpoint>(std::move(*checkpoint));
  auto pool = start_threads(options);
  if (!pool) return pool.error();
  runtime.pool = std::move(*pool);
  auto kernels = kernels::select(options.isa.value_or("auto"));
  if (!kernels) return kernels.error();
  runtime.kernels = *kernels;
  runtime.backend = backend::make_cpu_backend({options.compute, runtime.kernels, runtime.pool.get()});
  return runtime;
}

Status load_weights(Runtime& runtime) {
  const auto plan = model::plan_weights(*runtime.checkpoint,
                                        *backend::cpu_weight_sizes(runtime.backend->compute(), &runtime.input_widths));
  if (!plan) return plan.error();
  runtime.weight_plan = *plan;
  ProgressBar bar("loading weights");
  auto model = model::Model::load(*runtime.checkpoint, *runtime.backend,
                                  [&bar](std::int64_t done, std::int64_t total) { bar.update(done, total); });
  if (!model) return model.error();
  runtime.model = std::move(*model);
  if (const auto memory = platform::read_process_memory()) runtime.peak_resident_loading = memory->peak_resident;
  return {};
}

Expected<Runtime> load_runtime(const RuntimeOptions& options) {
  auto runtime = open_runtime(options);
  if (!runtime) return runtime;
  if (Status status = load_weights(*runtime); !status) return status.error();
  return runtime;
}

Expected<backend::PoolOptions> plan_pools(const Runtime& runtime, const CapacityOptions& options) {
  const ModelSpec& spec = runtime.model->spec();
  auto limits = platform::read_host_limits();
  if (!limits) return limits.error();
  backend::PoolOptions pools;
  pools.max_batch_tokens = static_cast<std::int32_t>(std::max(options.max_num_batched_tokens, options.max_num_seqs));
  pools.max_batch_slices = static_cast<std::int32_t>(options.max_num_seqs);
  pools.state_slots = spec.gdn ? pools.max_batch_slices : 0;
  pools.kv = options.kv;
  pools.kv_scales = options.kv_scales;
  const plan::KvFormat kv = options.kv.value_or(runtime.backend->kv_format());

  const std::int64_t per_token = plan::kv_bytes_per_token(spec, kv);
  const std::int64_t wanted_len = options.max_model_len ? static_cast<std::int64_t>(*options.max_model_len)
                                                        : std::int64_t{spec.max_position_embeddings};
  if (wanted_len > spec.max_position_embeddings) {
    return make_error(
        ErrorCode::kInvalidArgument,
        fmt::format("--max-model-len {} is beyond what the model was made for: max_position_embeddings is {}",
                    wanted_len, spec.max_position_embeddings),
        "--max-model-len");
  }
  pools.max_sequence_tokens = static_cast<std::int32_t>(wanted_len);
  plan::PoolWish wish;
  wish.available = static_cast<std::int64_t>(limits->memory_available) -
                   workspace_bytes(spec, pools, runtime.input_widths, *runtime.kernels, runtime.pool->threads());
  if (options.kv_cache_memory) wish.kv_memory = static_cast<std::int64_t>(*options.kv_cache_memory);
  wish.block_bytes = plan::kv_block_layer_bytes(spec, kv) * spec.count(LayerKind::kFullAttention);
  wish.state_bytes = plan::state_bytes_per_sequence(spec);
  wish.sequences = pools.max_batch_slices;
  wish.max_model_len = wanted_len;
  const std::int64_t blocks = plan::size_pools(wish).kv_blocks;
  pools.kv_blocks = static_cast<std::int32_t>(std::min<std::int64_t>(blocks, INT32_MAX));
  const std::int64_t fitting = std::int64_t{pools.kv_blocks} * plan::kBlockTokens;
  if (fitting < plan::kBlockTokens) {
    return make_error(
        ErrorCode::kResourceExhausted,
        fmt::format("the KV pool would hold {} tokens ({} per token); give it more with --kv-cache-memory", fitting,
                    format_bytes(per_token)),
        "--kv-cache-memory");
  }
  if (options.max_model_len && fitting < wanted_len) {
    return make_error(
        ErrorCode::kResourceExhausted,
        fmt::format("--max-model-len {} does not fit the KV pool of {} tokens ({} at {} per token); lower it or "
                    "raise --kv-cache-memory",
                    wanted_len, fitting, format_bytes(fitting * per_token), format_bytes(per_token)),
        "--max-model-len");
  }
  pools.max_sequence_tokens = static_cast<std::int32_t>(std::min(wanted_len, fitting));
  return pools;
}

Expected<std::shared_ptr<const text::Tokenizer>> load_tokenizer(const formats::Checkpoint& checkpoint) {
  if (const auto json = checkpoint.tokenizer_json()) return text::Tokenizer::from_json(*json);
  if (const formats::GgufTokenizerData* data = checkpoint.gguf_tokenizer()) {
    return text::Tokenizer::from_gguf(to_vocabulary(*data));
  }
  return make_error(
      ErrorCode::kNotFound,
      fmt::format("{} has no tokenizer.json; text can't be turned into tokens without it", checkpoint.path()),
      "tokenizer.json");
}

Expected<std::shared_ptr<const text::ChatTemplate>> load_chat_template(const formats::Checkpoint& checkpoint,
                                                                       const text::Tokenizer& tokenizer,
                                                                       const std::optional<std::string>& file) {
  const auto tokens = special_tokens(checkpoint, tokenizer);
  if (file) {
    auto source = read_text_file(*file);
    if (!source) return source.error();
    return text::ChatTemplate::compile(*source, tokens);
  }
  const boost::json::value* source = checkpoint.chat_template();
  if (source == nullptr) return std::shared_ptr<const text::ChatTemplate>();
  if (source->is_string()) return text::ChatTemplate::compile(std::string_view(source->get_string()), tokens);
  return text::ChatTemplate::compile(boost::json::serialize(*source), tokens);
}

}  // namespace sterling::cli
