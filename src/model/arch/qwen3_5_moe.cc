// Qwen3.5 / Qwen3.6 with experts (HF modeling_qwen3_5_moe.py): the hybrid decoder whose every MLP is routed experts plus a shared one with a
// sigmoid gate. The chosen experts are always renormalised. Shapes of checkpoint as in qwen3_5.cc; experts one by one or fused.
#include "model/arch/families.h"
#include "model/architecture.h"
#include "model/hybrid_decoder.h"

namespace sterling::model {
namespace {

void read_text(const formats::ObjectReader& config, ModelSpec& spec) {
  read_hybrid_text(config, spec, DenseMlp::kNo);
  read_moe(config, spec, {.shared_expert = true});
  // Left over from the dense model in some files; no layer has such an MLP.
  config.ignore({"intermediate_size", "decoder_sparse_step"});
}

Expected<ModelSpec> read_text_spec(const formats::ObjectReader& config) {
  return read_flat(config, read_text);
}

Expected<ModelSpec> read_full_spec(const formats::ObjectReader& config) {
  return read_flat_or_full(config, read_text);
}

DecoderWeights bind(const ModelSpec& spec, WeightBinder& binder, backend::RopeId rope) {
  return bind_hybrid_decoder(spec, binder, rope, GdnProjections::kSplit);
}

}  // namespace

const Architecture kQwen35MoeText{"Qwen3_5MoeForCausalLM", "Qwen3.5/3.6 with experts, text only", read_text_spec, bind};
const Architecture kQwen35Moe{"Qwen3_5MoeForConditionalGeneration",
                              "Qwen3.5/3.6 with experts, full checkpoint (text runs)", read_full_spec, bind};

}  // namespace sterling::model
