#include "model/dense_decoder.h"

#include <fmt/format.h>

namespace sterling::model {

using backend::RowSelection;
using backend::VectorTransform;

backend::VectorId bind_norm(const ModelSpec& spec, WeightBinder& binder, const std::string& name, std::int64_t size) {
  return binder.vector(name, size, spec.zero_centered_norm ? VectorTransform::kOnePlus : VectorTransform::kNone);
}

AttentionBlock bind_attention(const ModelSpec& spec, WeightBinder& binder, const std::string& module,
                              backend::RopeId rope, std::int32_t kv_layer) {
  const AttentionSpec& attention = spec.attention;
  const std::int64_t hidden = spec.hidden_size;
  const std::int64_t head_dim = attention.head_dim;
  const std::int64_t q_rows = attention.heads * head_dim;
  const std::int64_t kv_rows = attention.kv_heads * head_dim;
  AttentionBlock block;
  block.kv_layer = kv_layer;
  block.rope = rope;
  if (attention.output_gate) {
    // Per head, head_dim rows of query and then head_dim rows of gate.
    const std::string name = module + ".q_proj.weight";
    block.q = binder.linear_rows(name, 2 * q_rows, hidden, RowSelection{2 * head_dim, 0, head_dim});
    block.gate = binder.linear_rows(name, 2 * q_rows, hidden, RowSelection{2 * head_dim, head_dim, 2 * head_dim});
  } else {
    block.q = binder.linear_with_bias(module + ".q_proj", q_rows, hidden, attention.qkv_bias);
  }
  block.k = binder.linear_with_bias(module + ".k_proj", kv_rows, hidden, attention.qkv_bias);
  block.v = binder.linear_with_bias(module + ".v_proj", kv_rows, hidden, attention.qkv_bias);
  block.o = binder.linear(module + ".o_proj.weight", hidden, q_rows);
  if (attention.qk_norm) {
    block.q_norm = bind_norm(spec, binder, module + ".q_norm.weight", head_dim);
    block.k_norm = bind_norm(spec, binder, module + ".k_norm.weight", head_dim);
  }
  return block;
}

MlpBlock bind_mlp(const ModelSpec& spec, WeightBinder& binder, const std::string& module, std::int64_t inner) {
  MlpBlock block;
  block.gate = binder.linear(module + ".gate_proj.weight", inner, spec.hidden_size);
  block.up = binder.linear(module + ".up_proj.weight", inner, spec.hidden_size);
  block.down = binder.linear(module + ".down_proj.weight", spec.hidden_size, inner);
  return block;
}

void bind_ends(const ModelSpec& spec, WeightBinder& binder, DecoderWeights& weights) {
  const std::string table = spec.tensor_prefix + "embed_tokens.weight";
  weights.final_norm = bind_norm(spec, binder, spec.tensor_prefix + "norm.weight", spec.hidden_size);
  if (spec.tie_word_embeddings) {
    weights.lm_head = binder.linear(table, spec.vocab_size, spec.hidden_size);
    weights.embedding = binder.embedding_of(weights.lm_head);
    // Some exports write the tied head a second time; the table is what the model was trained with.
    binder.skip_suffix("lm_head.weight", "copy of the tied output head");
  } else {
    weights.embedding = binder.embedding(table, spec.vocab_size, spec.hidden_size);
    weights.lm_head = binder.linear("lm_head.weight", spec.vocab_size, spec.hidden_size);
  }
  // A buffer that old exports saved: recomputed from the configuration.
  binder.skip_suffix(".rotary_emb.inv_freq", "saved RoPE buffers");
}

DecoderWeights bind_dense_decoder(const ModelSpec& spec, WeightBinder& binder, backend::RopeId rope) {
  return bind_attention_decoder(spec, binder, rope, {});
}

DecoderWeights bind_attention_decoder(const ModelSpec& spec, WeightBinder& binder, backend::RopeId rope,
                                      const MoeNames& names) {
  DecoderWeights weights;
  for (std::int32_t i = 0; i < spec.layer_count(); ++i) {
    const std::string layer = fmt::format("{}layers.{}", spec.tensor_prefix, i);
    DecoderLayer bound;
    bound.input_norm = bind_norm(spec, binder, layer + ".input_layernorm.weight", spec.hidden_size);
    bound.mixer = bind_attention(spec, binder, layer + ".self_attn", rope, i);
    bound.post_norm = bind_norm(spec, binder, layer + ".post_attention_layernorm.weight", spec.hidden_size);
    bound.mlp = bind_feed_forward(spec, binder, i, layer, names);
    weights.layers.push_back(bound);
  }
  bind_ends(spec, binder, weights);
  return weights;
}

}  // namespace sterling::model
