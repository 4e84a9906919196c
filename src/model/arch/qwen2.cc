// Qwen2, Qwen2.5 (HF modeling_qwen2.py): Llama with bias on q, k and v.
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
  // Hugging Face files don't say it; configurations made from GGUF do.
  require_flag(config, "attention_bias", true, "Qwen2 has bias on q, k and v");
  spec.attention.qkv_bias = true;
  spec.tie_word_embeddings = config.boolean_or("tie_word_embeddings", false);
  if (Status status = config.status(); !status) return status.error();
  return spec;
}

}  // namespace

const Architecture kQwen2{"Qwen2ForCausalLM", "Qwen2, Qwen2.5 dense", read_spec, bind_dense_decoder};

}  // namespace sterling::model
