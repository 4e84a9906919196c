// Llama 2, Llama 3, SmolLM2 (HF modeling_llama.py): pre-norm decoder, grouped-query attention, SwiGLU, llama3 or linear RoPE scaling.
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
  require_flag(config, "attention_bias", false, "Llama checkpoints have no attention bias");
  require_flag(config, "mlp_bias", false, "Llama checkpoints have no MLP bias");
  spec.tie_word_embeddings = config.boolean_or("tie_word_embeddings", false);
  if (Status status = config.status(); !status) return status.error();
  return spec;
}

}  // namespace

const Architecture kLlama{"LlamaForCausalLM", "Llama 2/3, SmolLM2", read_spec, bind_dense_decoder};

}  // namespace sterling::model
