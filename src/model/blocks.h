// The building blocks of decoder layers: handles and shapes, made by the family files in arch/, run by decoder.cc. Data, not behaviour
// flags: what a layer does follows from which handles are there.
#pragma once

#include <variant>
#include <vector>

#include "backend/backend.h"
#include "spec/model_spec.h"

namespace sterling::model {

// softmax(q kᵀ) v with grouped KV heads; optional per-head norms of q and k before RoPE, optional sigmoid gate before o.
struct AttentionBlock {
  std::int32_t kv_layer = 0;
  backend::LinearId q, k, v, o;
  backend::LinearId gate;            // Qwen3.5: [heads * head_dim], or absent
  backend::VectorId q_norm, k_norm;  // [head_dim], or absent
  backend::RopeId rope;
};

// Gated DeltaNet.
struct GdnBlock {
  std::int32_t state_layer = 0;
  backend::LinearId qkv, z, a, b, out;
  backend::LinearId q, k, v;  // Qwen3-Next: in place of qkv
  backend::VectorId conv, exp_a_log, dt_bias, norm;
};

// down(silu(gate x) * (up x))
struct MlpBlock {
  backend::LinearId gate, up, down;
};

// The routed experts that the router picks, and the one that every token passes.
struct MoeBlock {
  backend::LinearId router;
  backend::LinearId gate, up, down;  // of expert 0; the others' ids follow
  MlpBlock shared;                   // absent in families without
  backend::LinearId shared_gate;     // [1, hidden]
};

// x += mixer(norm(x)); x += mlp(norm(x))
struct DecoderLayer {
  backend::VectorId input_norm;
  std::variant<AttentionBlock, GdnBlock> mixer;
  backend::VectorId post_norm;
  std::variant<MlpBlock, MoeBlock> mlp;
};

struct DecoderWeights {
  backend::EmbeddingId embedding;
  std::vector<DecoderLayer> layers;
  backend::VectorId final_norm;
  backend::LinearId lm_head;
};

}  // namespace sterling::model
