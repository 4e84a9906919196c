// Tensor binding that families share.
#pragma once

#include <string>

#include "model/blocks.h"
#include "model/weight_binder.h"

namespace sterling::model {

// q, k, v, o under `module` ("model.layers.3.self_attn"), with what the spec's attention has: biases, head norms, output gate.
AttentionBlock bind_attention(const ModelSpec& spec, WeightBinder& binder, const std::string& module,
                              backend::RopeId rope, std::int32_t kv_layer);
MlpBlock bind_mlp(const ModelSpec& spec, WeightBinder& binder, const std::string& module);
// A norm weight, 1 + w where the family's norms are zero-centred.
backend::VectorId bind_norm(const ModelSpec& spec, WeightBinder& binder, const std::string& name, std::int64_t size);
// Token embedding, final norm and head (tied: the head's rows serve as the table).
void bind_ends(const ModelSpec& spec, WeightBinder& binder, DecoderWeights& weights);

// The whole of a decoder whose layers are all attention + SwiGLU.
DecoderWeights bind_dense_decoder(const ModelSpec& spec, WeightBinder& binder, backend::RopeId rope);

}  // namespace sterling::model
