// Tensor binding that families share.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "model/blocks.h"
#include "model/weight_binder.h"

namespace sterling::model {

// q, k, v, o under `module` ("model.layers.3.self_attn"), with what the spec's attention has: biases, head norms, output gate.
AttentionBlock bind_attention(const ModelSpec& spec, WeightBinder& binder, const std::string& module,
                              backend::RopeId rope, std::int32_t kv_layer);
// gate_proj, up_proj and down_proj under `module`, `inner` wide.
MlpBlock bind_mlp(const ModelSpec& spec, WeightBinder& binder, const std::string& module, std::int64_t inner);
// A norm weight, 1 + w where the family's norms are zero-centred.
backend::VectorId bind_norm(const ModelSpec& spec, WeightBinder& binder, const std::string& name, std::int64_t size);
// Token embedding, final norm and head (tied: the head's rows serve as the table).
void bind_ends(const ModelSpec& spec, WeightBinder& binder, DecoderWeights& weights);

// Names of a layer's experts: <layer>.<module>.gate is the router, <layer>.<module>.experts.<n>.<gate|up|down> the experts.
struct MoeNames {
  std::string_view module = "mlp";
  std::string_view gate = "gate_proj";
  std::string_view up = "up_proj";
  std::string_view down = "down_proj";
};
// The MLP or the experts of a layer ("model.layers.3"), whichever the spec says.
std::variant<MlpBlock, MoeBlock> bind_feed_forward(const ModelSpec& spec, WeightBinder& binder, std::int32_t index,
                                                   const std::string& layer, const MoeNames& names);

// The whole of a decoder whose layers are all attention + SwiGLU or experts.
DecoderWeights bind_attention_decoder(const ModelSpec& spec, WeightBinder& binder, backend::RopeId rope,
                                      const MoeNames& names);
// With the usual names.
DecoderWeights bind_dense_decoder(const ModelSpec& spec, WeightBinder& binder, backend::RopeId rope);

}  // namespace sterling::model
