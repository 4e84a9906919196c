#include "formats/gguf_model.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <exception>
#include <limits>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "formats/message.h"
#include "formats/object_reader.h"

namespace sterling::formats {

namespace {

namespace json = boost::json;

struct Architecture {
  std::string_view gguf;        // general.architecture
  std::string_view model_type;  // Hugging Face's
  std::string_view class_name;
  bool interleaved_rope;  // Q and K rows were permuted by the converter
};

// A new architecture that uses the tensor names below is one row.
constexpr std::array kArchitectures = {
    Architecture{"llama", "llama", "LlamaForCausalLM", true},
    Architecture{"qwen2", "qwen2", "Qwen2ForCausalLM", false},
    Architecture{"qwen3", "qwen3", "Qwen3ForCausalLM", false},
};

struct NamePair {
  std::string_view gguf;
  std::string_view hugging_face;
};

constexpr std::array kGlobalNames = {
    NamePair{"token_embd.weight", "model.embed_tokens.weight"},
    NamePair{"output_norm.weight", "model.norm.weight"},
    NamePair{"output.weight", "lm_head.weight"},
    NamePair{"rope_freqs.weight", "rope_freqs.weight"},
};

// Below blk.N. and model.layers.N.; each may be followed by .weight or .bias.
constexpr std::array kLayerNames = {
    NamePair{"attn_norm", "input_layernorm"},    NamePair{"attn_q", "self_attn.q_proj"},
    NamePair{"attn_k", "self_attn.k_proj"},      NamePair{"attn_v", "self_attn.v_proj"},
    NamePair{"attn_output", "self_attn.o_proj"}, NamePair{"attn_q_norm", "self_attn.q_norm"},
    NamePair{"attn_k_norm", "self_attn.k_norm"}, NamePair{"ffn_norm", "post_attention_layernorm"},
    NamePair{"ffn_gate", "mlp.gate_proj"},       NamePair{"ffn_up", "mlp.up_proj"},
    NamePair{"ffn_down", "mlp.down_proj"},
};

constexpr std::int64_t kMaxDimension = std::int64_t{1} << 24;
constexpr std::int64_t kMaxHeads = 1 << 16;

Error corrupt(std::string_view file, std::string_view place, std::string_view problem,
              ErrorCode code = ErrorCode::kCorrupt) {
  return make_error(code, fmt::format("{}: {}: {}", file, place, problem), fmt::format("{}:{}", file, place));
}

Expected<const Architecture*> find_architecture(const GgufMetadata& metadata, std::string_view file) {
  const auto* name = metadata.get<std::string_view>("general.architecture");
  if (name == nullptr) return corrupt(file, "general.architecture", "is missing");
  std::string accepted;
  for (const Architecture& known : kArchitectures) {
    if (known.gguf == *name) return &known;
    accepted += (accepted.empty() ? "" : ", ") + std::string(known.gguf);
  }
  return corrupt(file, "general.architecture", fmt::format("{} is not supported; accepted: {}", quote(*name), accepted),
                 ErrorCode::kUnsupported);
}

json::value to_json(const GgufValue& value) {
  if (const auto* i = std::get_if<std::int64_t>(&value)) return *i;
  if (const auto* u = std::get_if<std::uint64_t>(&value)) return *u;
  if (const auto* d = std::get_if<double>(&value)) return *d;
  if (const auto* b = std::get_if<bool>(&value)) return *b;
  if (const auto* s = std::get_if<std::string_view>(&value)) return json::string(s->data(), s->size());
  return json::array();  // an array: of the wrong type wherever a scalar is expected, and named so
}

// The keys "<architecture>.*" without that prefix, for ObjectReader.
json::object architecture_keys(const GgufMetadata& metadata, std::string_view architecture) {
  const std::string prefix = std::string(architecture) + ".";
  json::object keys;
  for (const auto& [key, value] : metadata.pairs()) {
    if (!key.starts_with(prefix)) continue;
    const std::string_view name = key.substr(prefix.size());
    keys.emplace(json::string_view(name.data(), name.size()), to_json(value));
  }
  return keys;
}

// Accepts a per-layer array only where all layers agree.
void collapse_uniform_arrays(const GgufMetadata& metadata, std::string_view architecture, json::object& keys) {
  for (const std::string_view name : {"attention.head_count", "attention.head_count_kv", "feed_forward_length"}) {
    const auto* values = metadata.get<GgufIntegers>(fmt::format("{}.{}", architecture, name));
    if (values == nullptr || values->empty()) continue;
    const bool uniform =
        std::all_of(values->begin(), values->end(), [&](std::int64_t v) { return v == values->front(); });
    if (uniform) keys[json::string_view(name.data(), name.size())] = values->front();
  }
}

const TensorView* find_tensor(std::span<const TensorView> tensors, std::string_view name) {
  const auto at = std::find_if(tensors.begin(), tensors.end(), [&](const TensorView& t) { return t.name == name; });
  return at == tensors.end() ? nullptr : &*at;
}

void read_rope(const ObjectReader& keys, std::int64_t head_dim, json::object& config) {
  // 10000 is what the format defines for a file without the key.
  config["rope_theta"] = keys.number_or("rope.freq_base", 10000.0, 1.0, 1e12);
  const std::int64_t rotated = keys.integer_or("rope.dimension_count", head_dim, 1, kMaxDimension);
  if (rotated != head_dim) {
    keys.fail("rope.dimension_count",
              fmt::format("{} of {} dimensions of a head are rotated; accepted: all", rotated, head_dim),
              ErrorCode::kUnsupported);
  }

  const std::optional<double> legacy = keys.optional_number("rope.scale_linear", 1e-6, 1e6);
  const std::string type = keys.string_or("rope.scaling.type", legacy && *legacy != 1.0 ? "linear" : "none");
  const std::optional<double> factor = keys.optional_number("rope.scaling.factor", 1e-6, 1e6);
  const auto original = keys.optional_integer("rope.scaling.original_context_length", 1, INT64_MAX);
  const auto attention_factor = keys.optional_number("rope.scaling.attn_factor", 0.0, 1e6);
  keys.ignore({"rope.scaling.finetuned", "rope.scaling.yarn_log_multiplier"});
  if (type == "none") return;
  json::object scaling;
  scaling["rope_type"] = type;
  if (factor || legacy)
    scaling["factor"] = factor ? *factor : *legacy;
  else
    keys.fail("rope.scaling.factor", fmt::format("is missing for scaling type {}", quote(type)));
  if (original) scaling["original_max_position_embeddings"] = *original;
  if (attention_factor) scaling["attention_factor"] = *attention_factor;
  config["rope_scaling"] = std::move(scaling);
}

// Settings that other architectures of GGUF have and these do not: they may only say "off".
void refuse_features(const ObjectReader& keys) {
  for (const std::string_view key : {"expert_count", "expert_used_count"}) {
    if (keys.integer_or(key, 0, 0, INT64_MAX) != 0)
      keys.fail(key, "mixture of experts is not supported", ErrorCode::kUnsupported);
  }
  if (!keys.boolean_or("attention.causal", true)) {
    keys.fail("attention.causal", "attention that is not causal is not supported", ErrorCode::kUnsupported);
  }
  if (keys.boolean_or("use_parallel_residual", false)) {
    keys.fail("use_parallel_residual", "parallel residuals are not supported", ErrorCode::kUnsupported);
  }
}

Expected<json::object> make_config(const GgufContents& contents, const Architecture& architecture,
                                   std::string_view file) {
  json::object raw = architecture_keys(contents.metadata, architecture.gguf);
  collapse_uniform_arrays(contents.metadata, architecture.gguf, raw);
  const ObjectReader keys(raw, file, architecture.gguf);

  json::object config;
  config["architectures"] = json::array{json::string(architecture.class_name.data(), architecture.class_name.size())};
  config["model_type"] = json::string(architecture.model_type.data(), architecture.model_type.size());
  const std::int64_t hidden = keys.integer("embedding_length", 1, kMaxDimension);
  const std::int64_t heads = keys.integer("attention.head_count", 1, kMaxHeads);
  const std::int64_t kv_heads = keys.integer_or("attention.head_count_kv", heads, 1, kMaxHeads);
  std::optional<std::int64_t> head_dim = keys.optional_integer("attention.key_length", 1, kMaxDimension);
  if (!head_dim) {
    if (hidden % heads != 0)
      keys.fail("attention.head_count", fmt::format("{} does not divide embedding_length {}", heads, hidden));
    head_dim = std::max<std::int64_t>(1, hidden / heads);
  }
  const std::int64_t value_length = keys.integer_or("attention.value_length", *head_dim, 1, kMaxDimension);
  if (value_length != *head_dim) {
    keys.fail("attention.value_length", fmt::format("{} differs from the keys' {}", value_length, *head_dim),
              ErrorCode::kUnsupported);
  }
  config["hidden_size"] = hidden;
  config["intermediate_size"] = keys.integer("feed_forward_length", 1, kMaxDimension);
  config["num_hidden_layers"] = keys.integer("block_count", 1, 1 << 16);
  config["num_attention_heads"] = heads;
  config["num_key_value_heads"] = kv_heads;
  config["head_dim"] = *head_dim;
  config["hidden_act"] = "silu";  // GGUF has no key: the architecture's own
  config["max_position_embeddings"] = keys.integer("context_length", 1, std::int64_t{1} << 40);
  config["rms_norm_eps"] = keys.number("attention.layer_norm_rms_epsilon", 0.0, 1.0);
  read_rope(keys, *head_dim, config);
  if (const auto window = keys.optional_integer("attention.sliding_window", 0, INT64_MAX))
    config["sliding_window"] = *window;
  refuse_features(keys);
  keys.ignore({"tensor_data_layout"});

  const TensorView* embedding = find_tensor(contents.tensors, "token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2) {
    return corrupt(file, "token_embd.weight", embedding == nullptr ? "the tensor is missing" : "is not a matrix");
  }
  const std::int64_t vocabulary = embedding->shape[0];
  const std::int64_t declared = keys.integer_or("vocab_size", vocabulary, 1, INT64_MAX);
  if (declared != vocabulary) {
    keys.fail("vocab_size", fmt::format("{}, but token_embd.weight has {} rows", declared, vocabulary));
  }
  config["vocab_size"] = vocabulary;
  config["tie_word_embeddings"] = find_tensor(contents.tensors, "output.weight") == nullptr;
  config["attention_bias"] = find_tensor(contents.tensors, "blk.0.attn_q.bias") != nullptr;
  config["mlp_bias"] = find_tensor(contents.tensors, "blk.0.ffn_gate.bias") != nullptr;

  if (Status status = keys.status(); !status) return status.error();
  const std::vector<std::string> unknown = keys.unread();
  if (!unknown.empty()) {
    return corrupt(file, unknown.front(), "a setting that is not known for this architecture", ErrorCode::kUnsupported);
  }
  return config;
}

// "blk.12.attn_q.weight" -> "model.layers.12.self_attn.q_proj.weight"; empty when not known.
std::string hugging_face_name(std::string_view name) {
  for (const NamePair& pair : kGlobalNames) {
    if (pair.gguf == name) return std::string(pair.hugging_face);
  }
  constexpr std::string_view kPrefix = "blk.";
  if (!name.starts_with(kPrefix)) return {};
  name.remove_prefix(kPrefix.size());
  const std::size_t dot = name.find('.');
  const std::size_t last = name.rfind('.');
  if (dot == std::string_view::npos || last <= dot) return {};
  const std::string_view layer = name.substr(0, dot);
  const std::string_view part = name.substr(dot + 1, last - dot - 1);
  const std::string_view kind = name.substr(last + 1);
  unsigned number = 0;
  const auto [end, error] = std::from_chars(layer.data(), layer.data() + layer.size(), number);
  // The same digits again, so that "blk.01" cannot meet "blk.1".
  if (error != std::errc() || end != layer.data() + layer.size() || std::to_string(number) != layer) return {};
  if (kind != "weight" && kind != "bias") return {};
  for (const NamePair& pair : kLayerNames) {
    if (pair.gguf == part) return fmt::format("model.layers.{}.{}.{}", layer, pair.hugging_face, kind);
  }
  return {};
}

Expected<std::vector<TensorView>> rename_tensors(const GgufContents& contents, const Architecture& architecture,
                                                 const json::object& config, std::string_view file) {
  std::vector<TensorView> tensors;
  tensors.reserve(contents.tensors.size());
  for (const TensorView& source : contents.tensors) {
    TensorView tensor = source;
    tensor.name = hugging_face_name(source.name);
    if (tensor.name.empty()) {
      return corrupt(file, "tensor " + quote(source.name),
                     fmt::format("is not known for architecture {}", architecture.gguf), ErrorCode::kUnsupported);
    }
    const bool query = tensor.name.find(".self_attn.q_proj.") != std::string::npos;
    const bool key = tensor.name.find(".self_attn.k_proj.") != std::string::npos;
    if (architecture.interleaved_rope && (query || key)) {
      const std::int64_t heads = config.at(query ? "num_attention_heads" : "num_key_value_heads").get_int64();
      const std::int64_t rows = tensor.shape.empty() ? 0 : tensor.shape.front();
      if (rows == 0 || rows % (2 * heads) != 0) {
        return corrupt(file, "tensor " + quote(source.name),
                       fmt::format("shape {} cannot be {} heads", shape_text(tensor.shape), heads));
      }
      tensor.interleaved_rope_heads = heads;
    }
    tensors.push_back(std::move(tensor));
  }
  std::sort(tensors.begin(), tensors.end(), [](const TensorView& a, const TensorView& b) { return a.name < b.name; });
  return tensors;
}

// Where generation ends: the end-of-text id and, where the file has them, end of turn and end of message.
json::object make_generation_config(const GgufMetadata& metadata, const std::optional<GgufTokenizerData>& tokenizer) {
  json::object config;
  if (tokenizer) {
    if (tokenizer->bos_id) config["bos_token_id"] = *tokenizer->bos_id;
    if (tokenizer->padding_id) config["pad_token_id"] = *tokenizer->padding_id;
    json::array ends;
    for (const std::optional<std::int64_t>& id : {tokenizer->eos_id, tokenizer->eot_id, tokenizer->eom_id}) {
      if (id && std::find(ends.begin(), ends.end(), json::value(*id)) == ends.end()) ends.emplace_back(*id);
    }
    if (!ends.empty()) config["eos_token_id"] = std::move(ends);
  }
  constexpr std::array<NamePair, 5> kSampling = {{{"general.sampling.temp", "temperature"},
                                                  {"general.sampling.top_k", "top_k"},
                                                  {"general.sampling.top_p", "top_p"},
                                                  {"general.sampling.min_p", "min_p"},
                                                  {"general.sampling.penalty_repeat", "repetition_penalty"}}};
  for (const NamePair& pair : kSampling) {
    const GgufValue* value = metadata.find(pair.gguf);
    if (value != nullptr)
      config[json::string_view(pair.hugging_face.data(), pair.hugging_face.size())] = to_json(*value);
  }
  return config;
}

Expected<std::optional<json::value>> make_chat_template(const GgufMetadata& metadata, std::string_view file) {
  json::array list;
  const auto add = [&](std::string_view name, std::string_view key) -> Status {
    const GgufValue* value = metadata.find(key);
    const auto* text = value == nullptr ? nullptr : std::get_if<std::string_view>(value);
    if (text == nullptr) return corrupt(file, key, value == nullptr ? "is missing" : "expected a string");
    if (!is_valid_utf8(*text)) return corrupt(file, key, "is not valid UTF-8");
    list.push_back(
        {{"name", json::string(name.data(), name.size())}, {"template", json::string(text->data(), text->size())}});
    return {};
  };

  constexpr std::string_view kKey = "tokenizer.chat_template";
  if (metadata.find(kKey) != nullptr) {
    if (Status status = add("default", kKey); !status) return status.error();
  }
  if (const auto* names = metadata.get<GgufStrings>("tokenizer.chat_templates")) {
    for (const std::string_view name : *names) {
      if (!is_valid_utf8(name)) return corrupt(file, "tokenizer.chat_templates", "is not valid UTF-8");
      if (Status status = add(name, fmt::format("{}.{}", kKey, name)); !status) return status.error();
    }
  }
  if (list.empty()) return std::optional<json::value>();
  if (list.size() == 1 && metadata.find(kKey) != nullptr) return std::optional<json::value>(list[0].at("template"));
  return std::optional<json::value>(std::move(list));
}

Expected<GgufModel> convert(const GgufContents& contents, std::string_view file) {
  const Expected<const Architecture*> architecture = find_architecture(contents.metadata, file);
  if (!architecture) return architecture.error();

  GgufModel model;
  Expected<json::object> config = make_config(contents, **architecture, file);
  if (!config) return config.error();
  model.config = std::move(*config);
  Expected<std::vector<TensorView>> tensors = rename_tensors(contents, **architecture, model.config, file);
  if (!tensors) return tensors.error();
  model.tensors = std::move(*tensors);

  Expected<std::optional<GgufTokenizerData>> tokenizer = gguf_tokenizer(contents.metadata, file);
  if (!tokenizer) return tokenizer.error();
  model.tokenizer = std::move(*tokenizer);
  if (model.tokenizer) {
    const std::size_t tokens = model.tokenizer->tokens.size();
    const std::int64_t rows = model.config.at("vocab_size").get_int64();
    if (static_cast<std::int64_t>(tokens) != rows) {
      return corrupt(file, "tokenizer.ggml.tokens",
                     fmt::format("{} tokens, but token_embd.weight has {} rows", tokens, rows));
    }
    const GgufTokenizerData& data = *model.tokenizer;
    if (data.bos_id) model.config["bos_token_id"] = *data.bos_id;
    if (data.eos_id) model.config["eos_token_id"] = *data.eos_id;
    if (data.padding_id) model.config["pad_token_id"] = *data.padding_id;
  }
  model.generation_config = make_generation_config(contents.metadata, model.tokenizer);
  Expected<std::optional<json::value>> chat_template = make_chat_template(contents.metadata, file);
  if (!chat_template) return chat_template.error();
  model.chat_template = std::move(*chat_template);
  return model;
}

}  // namespace

Expected<GgufModel> gguf_model(const GgufContents& contents, std::string_view file) {
  try {
    return convert(contents, file);
  } catch (const std::exception& problem) {  // out of memory
    return make_error(ErrorCode::kResourceExhausted, fmt::format("{}: {}", file, problem.what()), std::string(file));
  }
}

}  // namespace sterling::formats
