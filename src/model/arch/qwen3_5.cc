// Qwen3.5 / Qwen3.6 dense (HF modeling_qwen3_5.py): Gated DeltaNet layers with a gated full-attention layer every few, zero-centred norms
// (except the GDN output norm), RoPE on a quarter of the head. Two shapes of checkpoint: the text model alone, and the full model
// with text_config, a `language_model.` prefix, a vision tower and an MTP head; both of the latter are known and skipped.
//
// Deviation: A_log and the GDN norm are used in FP32 as stored; transformers rounds them to BF16 when it loads in BF16.
#include <fmt/format.h>

#include "model/arch/families.h"
#include "model/architecture.h"
#include "model/config_fields.h"
#include "model/dense_decoder.h"

namespace sterling::model {
namespace {

using backend::VectorTransform;

void read_layers(const formats::ObjectReader& config, ModelSpec& spec) {
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

// The text model's fields, wherever they stand.
void read_text(const formats::ObjectReader& config, ModelSpec& spec) {
  read_common(config, spec);
  read_layers(config, spec);
  read_attention(config, spec);
  spec.gdn = read_gdn(config);
  spec.zero_centered_norm = true;
  spec.attention.qk_norm = true;
  spec.attention.output_gate = true;
  require_flag(config, "attention_bias", false, "Qwen3.5 checkpoints have no attention bias");
  require_flag(config, "attn_output_gate", true, "Qwen3.5 attention is gated");
  require_flag(config, "mtp_use_dedicated_embeddings", false, "the MTP head shares the embeddings");
  if (const auto type = config.optional_string("mamba_ssm_dtype"); type && *type != "float32") {
    config.fail("mamba_ssm_dtype",
                fmt::format("\"{}\" is not supported: the recurrent state is FP32; accepted: float32", *type),
                ErrorCode::kUnsupported);
  }
  if (const auto gate = config.optional_string("output_gate_type"); gate && *gate != "swish" && *gate != "silu") {
    config.fail("output_gate_type", fmt::format("\"{}\" is not supported; accepted: swish, silu", *gate),
                ErrorCode::kUnsupported);
  }
  if (const auto* moe = config.find("num_experts"); moe != nullptr && moe->is_int64() && moe->as_int64() > 0) {
    config.fail("num_experts", "is not expected in a dense Qwen3.5 model", ErrorCode::kUnsupported);
  }
  spec.mtp_layers = static_cast<std::int32_t>(config.integer_or("mtp_num_hidden_layers", 0, 0, 64));
  config.ignore({"mlp_only_layers", "vocab_size_per_layer_input"});
}

Expected<ModelSpec> read_text_spec(const formats::ObjectReader& config) {
  ModelSpec spec;
  read_text(config, spec);
  spec.tie_word_embeddings = config.boolean_or("tie_word_embeddings", false);
  if (Status status = config.status(); !status) return status.error();
  return spec;
}

Expected<ModelSpec> read_full_spec(const formats::ObjectReader& config) {
  if (!config.has("text_config")) return read_text_spec(config);
  ModelSpec spec;
  const formats::ObjectReader text = config.object("text_config");
  read_text(text, spec);
  // Both levels carry the flag in released files; the outer one is what transformers obeys.
  const bool inner = text.boolean_or("tie_word_embeddings", false);
  spec.tie_word_embeddings = config.boolean_or("tie_word_embeddings", inner);
  spec.tensor_prefix = "model.language_model.";
  spec.has_vision = config.has("vision_config");
  config.ignore({"architectures", "model_type", "dtype", "torch_dtype", "transformers_version", "vision_config",
                 "image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id",
                 "language_model_only", "quantization_config", "bos_token_id", "eos_token_id", "pad_token_id",
                 "use_cache"});
  for (const std::int64_t id : config.integer_or_list("eos_token_id", 0, 1 << 24)) {
    spec.eos_token_ids.push_back(static_cast<std::int32_t>(id));
  }
  if (Status status = config.status(); !status) return status.error();
  return spec;
}

GdnBlock bind_gdn(const ModelSpec& spec, WeightBinder& binder, const std::string& module, std::int32_t state_layer) {
  const GdnSpec& gdn = *spec.gdn;
  const std::int64_t hidden = spec.hidden_size;
  const std::int64_t value_width = std::int64_t{gdn.value_heads} * gdn.value_dim;
  GdnBlock block;
  block.state_layer = state_layer;
  block.qkv = binder.linear(module + ".in_proj_qkv.weight", gdn.conv_channels(), hidden);
  block.z = binder.linear(module + ".in_proj_z.weight", value_width, hidden);
  block.a = binder.linear(module + ".in_proj_a.weight", gdn.value_heads, hidden);
  block.b = binder.linear(module + ".in_proj_b.weight", gdn.value_heads, hidden);
  block.out = binder.linear(module + ".out_proj.weight", hidden, value_width);
  block.conv = binder.conv(module + ".conv1d.weight", gdn.conv_channels(), gdn.conv_kernel);
  block.exp_a_log = binder.vector(module + ".A_log", gdn.value_heads, VectorTransform::kExp);
  block.dt_bias = binder.vector(module + ".dt_bias", gdn.value_heads, VectorTransform::kNone);
  block.norm = binder.vector(module + ".norm.weight", gdn.value_dim, VectorTransform::kNone);
  return block;
}

DecoderWeights bind(const ModelSpec& spec, WeightBinder& binder, backend::RopeId rope) {
  DecoderWeights weights;
  std::int32_t kv_layer = 0;
  std::int32_t state_layer = 0;
  for (std::int32_t i = 0; i < spec.layer_count(); ++i) {
    const std::string layer = fmt::format("{}layers.{}", spec.tensor_prefix, i);
    DecoderLayer bound;
    bound.input_norm = bind_norm(spec, binder, layer + ".input_layernorm.weight", spec.hidden_size);
    if (spec.layers[static_cast<std::size_t>(i)] == LayerKind::kFullAttention) {
      bound.mixer = bind_attention(spec, binder, layer + ".self_attn", rope, kv_layer++);
    } else {
      bound.mixer = bind_gdn(spec, binder, layer + ".linear_attn", state_layer++);
    }
    bound.post_norm = bind_norm(spec, binder, layer + ".post_attention_layernorm.weight", spec.hidden_size);
    bound.mlp = bind_mlp(spec, binder, layer + ".mlp");
    weights.layers.push_back(bound);
  }
  bind_ends(spec, binder, weights);
  binder.skip_prefix("mtp.", "MTP head (speculation is not built yet)");
  binder.skip_prefix("model.visual.", "vision tower");
  binder.skip_prefix("visual.", "vision tower");
  return weights;
}

}  // namespace

const Architecture kQwen35Text{"Qwen3_5ForCausalLM", "Qwen3.5/3.6 dense, text only", read_text_spec, bind};
const Architecture kQwen35{"Qwen3_5ForConditionalGeneration", "Qwen3.5/3.6 dense, full checkpoint (text runs)",
                           read_full_spec, bind};

}  // namespace sterling::model
