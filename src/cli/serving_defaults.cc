#include "cli/serving_defaults.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "formats/object_reader.h"

namespace sterling::cli {
namespace {

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

}  // namespace

Expected<serving::ServiceOptions> make_service_options(const config::ServeOptions& options, const Runtime& runtime,
                                                       const LogSink& log) {
  serving::ServiceOptions service;
  auto tokenizer = load_tokenizer(*runtime.checkpoint);
  if (tokenizer) {
    service.tokenizer = *tokenizer;
    auto chat_template = load_chat_template(*runtime.checkpoint, *service.tokenizer, options.chat_template);
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
  auto defaults = read_defaults(*runtime.checkpoint);
  if (!defaults) return defaults.error();
  service.defaults = *defaults;
  auto eos = read_eos(runtime, service.tokenizer.get());
  if (!eos) return eos.error();
  service.eos_token_ids = *eos;
  service.vocab_size = runtime.model->limits().vocab_size;
  service.max_sequence_tokens = runtime.model->limits().max_sequence_tokens;
  if (options.seed) service.seed = static_cast<std::uint64_t>(*options.seed);
  return service;
}

}  // namespace sterling::cli
