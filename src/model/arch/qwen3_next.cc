// Qwen3-Next (HF modeling_qwen3_next.py): the hybrid decoder with fused GDN projections; routed experts plus a shared one, dense MLPs where
// mlp_only_layers and decoder_sparse_step say so.
#include "model/arch/families.h"
#include "model/architecture.h"
#include "model/hybrid_decoder.h"

namespace sterling::model {
namespace {

void read_text(const formats::ObjectReader& config, ModelSpec& spec) {
  read_hybrid_text(config, spec, DenseMlp::kYes);
  read_moe(config, spec, {.shared_expert = true, .norm_topk_default = true, .sparse_layers = true});
}

Expected<ModelSpec> read_spec(const formats::ObjectReader& config) {
  return read_flat(config, read_text);
}

DecoderWeights bind(const ModelSpec& spec, WeightBinder& binder, backend::RopeId rope) {
  return bind_hybrid_decoder(spec, binder, rope, GdnProjections::kFused);
}

}  // namespace

const Architecture kQwen3Next{"Qwen3NextForCausalLM", "Qwen3-Next", read_spec, bind};

}  // namespace sterling::model
