#include "model/hybrid_decoder.h"

#include <fmt/format.h>

#include "model/dense_decoder.h"

namespace sterling::model {

using backend::RowSelection;
using backend::VectorTransform;

namespace {

// Rows are grouped by key head: q, k, then the v and z of the value heads that share it; b and a alike (HF Qwen3NextGatedDeltaNet,
// fix_query_key_value_ordering). Value heads come out in order, as the delta rule counts them.
void bind_fused(const GdnSpec& gdn, WeightBinder& binder, const std::string& module, std::int64_t hidden,
                GdnBlock& block) {
  const std::int64_t key = gdn.key_dim;
  const std::int64_t shared = gdn.value_heads / gdn.key_heads;
  const std::int64_t value = shared * gdn.value_dim;
  const std::int64_t period = 2 * key + 2 * value;
  const auto qkvz = [&](std::int64_t begin, std::int64_t count) {
    return binder.linear_rows(module + ".in_proj_qkvz.weight", gdn.key_heads * period, hidden,
                              RowSelection{period, begin, begin + count});
  };
  block.q = qkvz(0, key);
  block.k = qkvz(key, key);
  block.v = qkvz(2 * key, value);
  block.z = qkvz(2 * key + value, value);
  const auto ba = [&](std::int64_t begin) {
    return binder.linear_rows(module + ".in_proj_ba.weight", 2 * std::int64_t{gdn.value_heads}, hidden,
                              RowSelection{2 * shared, begin, begin + shared});
  };
  block.b = ba(0);
  block.a = ba(shared);
}

}  // namespace

void read_hybrid_text(const formats::ObjectReader& config, ModelSpec& spec, DenseMlp dense) {
  read_common(config, spec, dense);
  read_hybrid_layers(config, spec);
  read_attention(config, spec);
  spec.gdn = read_gdn(config);
  spec.zero_centered_norm = true;
  spec.attention.qk_norm = true;
  spec.attention.output_gate = true;
  require_flag(config, "attention_bias", false, "the Qwen hybrids have no attention bias");
  require_flag(config, "attn_output_gate", true, "the Qwen hybrids' attention is gated");
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
  spec.mtp_layers = static_cast<std::int32_t>(config.integer_or("mtp_num_hidden_layers", 0, 0, 64));
  refuse_sliding_window(config);
}

Expected<ModelSpec> read_flat(const formats::ObjectReader& config, ReadText read_text) {
  ModelSpec spec;
  read_text(config, spec);
  spec.tie_word_embeddings = config.boolean_or("tie_word_embeddings", false);
  if (Status status = config.status(); !status) return status.error();
  return spec;
}

Expected<ModelSpec> read_flat_or_full(const formats::ObjectReader& config, ReadText read_text) {
  if (!config.has("text_config")) return read_flat(config, read_text);
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

GdnBlock bind_gdn(const ModelSpec& spec, WeightBinder& binder, const std::string& module, std::int32_t state_layer,
                  GdnProjections expected) {
  const GdnSpec& gdn = *spec.gdn;
  const std::int64_t hidden = spec.hidden_size;
  const std::int64_t value_width = std::int64_t{gdn.value_heads} * gdn.value_dim;
  const std::string split = module + ".in_proj_qkv";
  const std::string fused = module + ".in_proj_qkvz";
  GdnBlock block;
  block.state_layer = state_layer;
  const bool is_fused = expected == GdnProjections::kFused ? !binder.has_weight(split) || binder.has_weight(fused)
                                                           : binder.has_weight(fused);
  if (is_fused) {
    bind_fused(gdn, binder, module, hidden, block);
  } else {
    block.qkv = binder.linear(split + ".weight", gdn.conv_channels(), hidden);
    block.z = binder.linear(module + ".in_proj_z.weight", value_width, hidden);
    block.a = binder.linear(module + ".in_proj_a.weight", gdn.value_heads, hidden);
    block.b = binder.linear(module + ".in_proj_b.weight", gdn.value_heads, hidden);
  }
  block.out = binder.linear(module + ".out_proj.weight", hidden, value_width);
  block.conv = binder.conv(module + ".conv1d.weight", gdn.conv_channels(), gdn.conv_kernel);
  block.exp_a_log = binder.vector(module + ".A_log", gdn.value_heads, VectorTransform::kExp);
  block.dt_bias = binder.vector(module + ".dt_bias", gdn.value_heads, VectorTransform::kNone);
  block.norm = binder.vector(module + ".norm.weight", gdn.value_dim, VectorTransform::kNone);
  return block;
}

DecoderWeights bind_hybrid_decoder(const ModelSpec& spec, WeightBinder& binder, backend::RopeId rope,
                                   GdnProjections expected) {
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
      bound.mixer = bind_gdn(spec, binder, layer + ".linear_attn", state_layer++, expected);
    }
    bound.post_norm = bind_norm(spec, binder, layer + ".post_attention_layernorm.weight", spec.hidden_size);
    bound.mlp = bind_feed_forward(spec, binder, i, layer, {});
    weights.layers.push_back(bound);
  }
  bind_ends(spec, binder, weights);
  binder.skip_prefix("mtp.", "MTP head (speculation is not built yet)");
  binder.skip_prefix("model.visual.", "vision tower");
  binder.skip_prefix("visual.", "vision tower");
  return weights;
}

}  // namespace sterling::model
