// Qwen3 with experts (HF modeling_qwen3_moe.py): Qwen3's attention; routed experts, dense MLPs where mlp_only_layers and
// decoder_sparse_step say so. No shared expert.
#include "model/arch/families.h"
#include "model/architecture.h"
#include "model/config_fields.h"
#include "model/dense_decoder.h"

namespace sterling::model {
namespace {

Expected<ModelSpec> read_spec(const formats::ObjectReader& config) {
  ModelSpec spec;
  read_common(config, spec);
  read_full_attention_layers(config, spec);
  read_attention(config, spec);
  read_moe(config, spec, {.norm_topk_default = false, .sparse_layers = true});
  refuse_sliding_window(config);
  require_flag(config, "attention_bias", false, "Qwen3 checkpoints have no attention bias");
  spec.attention.qk_norm = true;
  spec.tie_word_embeddings = config.boolean_or("tie_word_embeddings", false);
  if (Status status = config.status(); !status) return status.error();
  return spec;
}

}  // namespace

const Architecture kQwen3Moe{"Qwen3MoeForCausalLM", "Qwen3 with experts", read_spec, bind_dense_decoder};

}  // namespace sterling::model
