#include "model/config_fields.h"

#include <cmath>

#include <fmt/format.h>

namespace sterling::model {
namespace {

constexpr std::int64_t kMaxExtent = 1 << 24;
constexpr std::int64_t kMaxHeads = 1 << 14;
constexpr std::int64_t kMaxLayers = 4096;
constexpr std::int64_t kMaxExperts = 1 << 14;

// rope_parameters (transformers 5) or rope_theta + rope_scaling + partial_rotary_factor (before).
RopeSpec read_rope(const formats::ObjectReader& config, std::int32_t head_dim) {
  RopeSpec rope;
  const auto parameters = config.optional_object("rope_parameters");
  const auto scaling = config.optional_object("rope_scaling");
  const formats::ObjectReader* source = parameters ? &*parameters : scaling ? &*scaling : nullptr;

  rope.theta = config.number_or("rope_theta", 10000.0, 1.0, 1e15);
  double partial = config.number_or("partial_rotary_factor", 1.0, 1e-3, 1.0);
  if (source != nullptr) {
    rope.theta = source->number_or("rope_theta", rope.theta, 1.0, 1e15);
    partial = source->number_or("partial_rotary_factor", partial, 1e-3, 1.0);
    // "type" is the older spelling; files often carry both.
    const std::string older = source->string_or("type", "default");
    const std::string type = source->string_or("rope_type", older);
    // Three position streams that are equal for text, so plain RoPE is exact (HF modeling_qwen3_5.py).
    source->ignore({"mrope_interleaved", "mrope_section"});
    if (type == "default" || type == "mrope") {
      rope.type = RopeType::kDefault;
    } else if (type == "linear") {
      rope.type = RopeType::kLinear;
      rope.factor = source->number("factor", 1.0, 1e6);
    } else if (type == "llama3") {
      rope.type = RopeType::kLlama3;
      rope.factor = source->number("factor", 1.0, 1e6);
      rope.low_freq_factor = source->number("low_freq_factor", 1e-3, 1e6);
      rope.high_freq_factor = source->number("high_freq_factor", 1e-3, 1e6);
      rope.original_max_position =
          static_cast<std::int32_t>(source->integer("original_max_position_embeddings", 1, kMaxExtent));
      if (rope.high_freq_factor <= rope.low_freq_factor) {
        source->fail("high_freq_factor", "must be greater than low_freq_factor");
      }
    } else {
      source->fail(source->has("rope_type") ? "rope_type" : "type",
                   fmt::format("\"{}\" is not supported; accepted: default, linear, llama3", type),
                   ErrorCode::kUnsupported);
    }
  }
  rope.rotary_dim = static_cast<std::int32_t>(std::lround(head_dim * partial));
  if (rope.rotary_dim < 2) config.fail("partial_rotary_factor", "leaves no dims to rotate");
  if (rope.rotary_dim % 2 != 0) {
    config.fail("partial_rotary_factor", fmt::format("{} of head_dim {} is an odd number of dims to rotate: {}",
                                                     partial, head_dim, rope.rotary_dim));
  }
  return rope;
}

}  // namespace

void read_common(const formats::ObjectReader& config, ModelSpec& spec, DenseMlp dense) {
  spec.vocab_size = static_cast<std::int32_t>(config.integer("vocab_size", 1, kMaxExtent));
  spec.hidden_size = static_cast<std::int32_t>(config.integer("hidden_size", 1, kMaxExtent));
  if (dense == DenseMlp::kYes) {
    spec.intermediate_size = static_cast<std::int32_t>(config.integer("intermediate_size", 1, kMaxExtent));
  }
  spec.max_position_embeddings = static_cast<std::int32_t>(config.integer("max_position_embeddings", 1, kMaxExtent));
  spec.rms_norm_eps = static_cast<float>(config.number_or("rms_norm_eps", 1e-6, 0.0, 1.0));
  if (const auto activation = config.optional_string("hidden_act"); activation && *activation != "silu") {
    config.fail("hidden_act", fmt::format("\"{}\" is not supported; accepted: silu", *activation),
                ErrorCode::kUnsupported);
  }
  for (const std::int64_t id : config.integer_or_list("eos_token_id", 0, kMaxExtent)) {
    spec.eos_token_ids.push_back(static_cast<std::int32_t>(id));
  }
  // Training, storage and bookkeeping: nothing here changes what a forward pass computes.
  config.ignore({"architectures",
                 "model_type",
                 "dtype",
                 "torch_dtype",
                 "transformers_version",
                 "use_cache",
                 "initializer_range",
                 "attention_dropout",
                 "hidden_dropout",
                 "bos_token_id",
                 "pad_token_id",
                 "pretraining_tp",
                 "_name_or_path",
                 "name_or_path",
                 "max_window_layers",
                 "is_llama_config",
                 "transformers.js_config",
                 "auto_map",
                 "output_attentions",
                 "output_hidden_states",
                 "return_dict",
                 "quantization_config",
                 "unsloth_fixed",
                 "unsloth_version",
                 "rope_interleaved"});
}

void read_full_attention_layers(const formats::ObjectReader& config, ModelSpec& spec) {
  const auto count = static_cast<std::size_t>(config.integer("num_hidden_layers", 1, kMaxLayers));
  spec.layers.assign(count, LayerKind::kFullAttention);
  const auto types = config.optional_strings("layer_types");
  if (!types) return;
  if (types->size() != count) {
    config.fail("layer_types", fmt::format("has {} entries, num_hidden_layers is {}", types->size(), count));
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    if ((*types)[i] == "full_attention") continue;
    config.fail("layer_types", fmt::format("[{}] is \"{}\"; accepted here: full_attention", i, (*types)[i]),
                ErrorCode::kUnsupported);
    return;
  }
}

void read_hybrid_layers(const formats::ObjectReader& config, ModelSpec& spec) {
  const std::int64_t count = config.integer("num_hidden_layers", 1, 4096);
  const std::int64_t interval = config.integer_or("full_attention_interval", 4, 1, 4096);
  const auto types = config.optional_strings("layer_types");
  if (types && static_cast<std::int64_t>(types->size()) != count) {
    config.fail("layer_types", fmt::format("has {} entries, num_hidden_layers is {}", types->size(), count));
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    if (!types) {
      spec.layers.push_back((i + 1) % interval == 0 ? LayerKind::kFullAttention : LayerKind::kLinearAttention);
      continue;
    }
    const std::string& type = (*types)[static_cast<std::size_t>(i)];
    if (type != "full_attention" && type != "linear_attention") {
      config.fail("layer_types", fmt::format("[{}] is \"{}\"; accepted: full_attention, linear_attention", i, type),
                  ErrorCode::kUnsupported);
      return;
    }
    spec.layers.push_back(type == "full_attention" ? LayerKind::kFullAttention : LayerKind::kLinearAttention);
  }
}

GdnSpec read_gdn(const formats::ObjectReader& config) {
  GdnSpec gdn;
  gdn.key_heads = static_cast<std::int32_t>(config.integer("linear_num_key_heads", 1, 4096));
  gdn.value_heads = static_cast<std::int32_t>(config.integer("linear_num_value_heads", 1, 4096));
  gdn.key_dim = static_cast<std::int32_t>(config.integer("linear_key_head_dim", 1, 1024));
  gdn.value_dim = static_cast<std::int32_t>(config.integer("linear_value_head_dim", 1, 1024));
  gdn.conv_kernel = static_cast<std::int32_t>(config.integer("linear_conv_kernel_dim", 2, 8));
  if (gdn.value_heads % gdn.key_heads != 0) {
    config.fail("linear_num_value_heads",
                fmt::format("{} is not a multiple of linear_num_key_heads ({})", gdn.value_heads, gdn.key_heads));
  }
  return gdn;
}

void read_moe(const formats::ObjectReader& config, ModelSpec& spec, const MoeKeys& keys) {
  const auto extent = [&](std::string_view key) {
    return static_cast<std::int32_t>(config.integer(key, 1, kMaxExtent));
  };
  MoeSpec moe;
  // transformers 5 writes num_local_experts for every family; before, it was Mixtral's spelling.
  moe.experts = static_cast<std::int32_t>(
      config.integer(config.has("num_experts") ? "num_experts" : "num_local_experts", 1, kMaxExperts));
  if (config.has("num_experts") && config.integer_or("num_local_experts", moe.experts, 1, kMaxExperts) != moe.experts) {
    config.fail("num_local_experts", fmt::format("contradicts num_experts ({})", moe.experts));
  }
  moe.experts_per_token = static_cast<std::int32_t>(config.integer("num_experts_per_tok", 1, kMaxExperts));
  if (moe.experts_per_token > moe.experts) {
    config.fail("num_experts_per_tok",
                fmt::format("{} is more than the {} experts", moe.experts_per_token, moe.experts));
  }
  moe.intermediate = extent(keys.intermediate);
  if (keys.shared_expert) moe.shared_intermediate = extent("shared_expert_intermediate_size");
  if (keys.norm_topk_default) {
    moe.norm_topk = config.boolean_or("norm_topk_prob", *keys.norm_topk_default);
  } else {
    require_flag(config, "norm_topk_prob", true, "this family always renormalises the chosen experts");
  }
  spec.moe_layers.assign(spec.layers.size(), true);
  if (keys.sparse_layers) {
    const std::int64_t step = config.integer_or("decoder_sparse_step", 1, 1, kMaxLayers);
    for (std::size_t i = 0; i < spec.layers.size(); ++i) {
      spec.moe_layers[i] = (static_cast<std::int64_t>(i) + 1) % step == 0;
    }
    for (const std::int64_t layer : config.integer_or_list("mlp_only_layers", 0, kMaxLayers)) {
      if (static_cast<std::size_t>(layer) < spec.layers.size())
        spec.moe_layers[static_cast<std::size_t>(layer)] = false;
    }
  } else if (const auto* dense = config.find("mlp_only_layers");
             dense != nullptr && !(dense->is_array() && dense->get_array().empty()) && !dense->is_null()) {
    config.fail("mlp_only_layers", "is not supported: every layer of this family has experts; accepted: []",
                ErrorCode::kUnsupported);
  }
  // Training only.
  config.ignore({"router_aux_loss_coef", "output_router_logits"});
  spec.moe = moe;
}

void read_attention(const formats::ObjectReader& config, ModelSpec& spec) {
  AttentionSpec& attention = spec.attention;
  attention.heads = static_cast<std::int32_t>(config.integer("num_attention_heads", 1, kMaxHeads));
  attention.kv_heads =
      static_cast<std::int32_t>(config.integer_or("num_key_value_heads", attention.heads, 1, kMaxHeads));
  if (attention.heads % attention.kv_heads != 0) {
    config.fail("num_key_value_heads",
                fmt::format("{} does not divide num_attention_heads ({})", attention.kv_heads, attention.heads));
  }
  if (const auto head_dim = config.optional_integer("head_dim", 2, 4096)) {
    attention.head_dim = static_cast<std::int32_t>(*head_dim);
  } else if (spec.hidden_size % attention.heads == 0 && spec.hidden_size / attention.heads >= 2) {
    attention.head_dim = spec.hidden_size / attention.heads;
  } else {
    config.fail("num_attention_heads", fmt::format("{} does not divide hidden_size ({}) and head_dim is not given",
                                                   attention.heads, spec.hidden_size));
    attention.head_dim = 2;
  }
  if (attention.head_dim % 2 != 0) {
    config.fail("head_dim", fmt::format("{} is odd; RoPE needs an even head_dim", attention.head_dim));
    attention.head_dim += 1;
  }
  attention.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(attention.head_dim)));
  attention.rope = read_rope(config, attention.head_dim);
}

void refuse_sliding_window(const formats::ObjectReader& config) {
  const bool on = config.boolean_or("use_sliding_window", false);
  const auto window = config.optional_integer("sliding_window", 0, std::int64_t{1} << 40);
  if (on && window) {
    config.fail("use_sliding_window", "sliding-window attention is not supported; accepted: false",
                ErrorCode::kUnsupported);
  }
}

void require_flag(const formats::ObjectReader& config, std::string_view key, bool value, std::string_view reason) {
  if (config.boolean_or(key, value) == value) return;
  config.fail(key, fmt::format("{} is not supported: {}; accepted: {}", !value, reason, value),
              ErrorCode::kUnsupported);
}

}  // namespace sterling::model
