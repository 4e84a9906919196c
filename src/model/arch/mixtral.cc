// Mixtral (HF modeling_mixtral.py): Llama's attention, every MLP is routed experts named w1 (gate), w3 (up) and w2 (down). The chosen experts
// are always renormalised.
#include <fmt/format.h>

#include "model/arch/families.h"
#include "model/architecture.h"
#include "model/config_fields.h"
#include "model/dense_decoder.h"

namespace sterling::model {
namespace {

Expected<ModelSpec> read_spec(const formats::ObjectReader& config) {
  ModelSpec spec;
  read_common(config, spec, DenseMlp::kNo);
  read_full_attention_layers(config, spec);
  read_attention(config, spec);
  read_moe(config, spec, {.intermediate = "intermediate_size"});
  // There is no switch beside the size: transformers slides whenever it is set.
  const auto window = config.optional_integer("sliding_window", 0, std::int64_t{1} << 40);
  if (window && *window < spec.max_position_embeddings) {
    config.fail("sliding_window", fmt::format("{}: sliding-window attention is not supported; accepted: null", *window),
                ErrorCode::kUnsupported);
  }
  config.ignore({"router_jitter_noise"});  // training only
  spec.tie_word_embeddings = config.boolean_or("tie_word_embeddings", false);
  if (Status status = config.status(); !status) return status.error();
  return spec;
}

DecoderWeights bind(const ModelSpec& spec, WeightBinder& binder, backend::RopeId rope) {
  return bind_attention_decoder(spec, binder, rope,
                                {.module = "block_sparse_moe", .gate = "w1", .up = "w3", .down = "w2"});
}

}  // namespace

const Architecture kMixtral{"MixtralForCausalLM", "Mixtral", read_spec, bind};

}  // namespace sterling::model
