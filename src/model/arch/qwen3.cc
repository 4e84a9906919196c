// Qwen3 dense (HF modeling_qwen3.py): per-head RMSNorm on q and k before RoPE, no biases.
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
  refuse_sliding_window(config);
  require_flag(config, "attention_bias", false, "Qwen3 checkpoints have no attention bias");
  spec.attention.qk_norm = true;
  spec.tie_word_embeddings = config.boolean_or("tie_word_embeddings", false);
  if (Status status = config.status(); !status) return status.error();
  return spec;
}

}  // namespace

const Architecture kQwen3{"Qwen3ForCausalLM", "Qwen3 dense", read_spec, bind_dense_decoder};

}  // namespace sterling::model
