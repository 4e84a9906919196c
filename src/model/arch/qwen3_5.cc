// Qwen3.5 / Qwen3.6 dense (HF modeling_qwen3_5.py): the hybrid decoder with dense MLPs. Two shapes of checkpoint: the text model alone, and the
// full model with text_config, a `language_model.` prefix, a vision tower and an MTP head; both of the latter are known and skipped.
#include "model/arch/families.h"
#include "model/architecture.h"
#include "model/hybrid_decoder.h"

namespace sterling::model {
namespace {

void read_text(const formats::ObjectReader& config, ModelSpec& spec) {
  read_hybrid_text(config, spec, DenseMlp::kYes);
  if (const auto* moe = config.find("num_experts"); moe != nullptr && moe->is_int64() && moe->as_int64() > 0) {
    config.fail("num_experts", "is not expected in a dense Qwen3.5 model", ErrorCode::kUnsupported);
  }
  config.ignore({"mlp_only_layers", "vocab_size_per_layer_input"});
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

const Architecture kQwen35Text{"Qwen3_5ForCausalLM", "Qwen3.5/3.6 dense, text only", read_text_spec, bind};
const Architecture kQwen35{"Qwen3_5ForConditionalGeneration", "Qwen3.5/3.6 dense, full checkpoint (text runs)",
                           read_full_spec, bind};

}  // namespace sterling::model
