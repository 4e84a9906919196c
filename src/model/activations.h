// Every activation buffer of a forward pass, all FP32, [max_batch_tokens, columns]. Reading this struct tells what exists between the
// operations; where products round their input is in docs/numerics.md.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "base/status.h"
#include "spec/model_spec.h"

namespace sterling::model {

struct Activations {
  backend::Matrix residual;     // [tokens, hidden]
  backend::Matrix normed;       // [tokens, hidden] input of mixer, MLP and head
  backend::Matrix mixed;        // [tokens, widest mixer output] attention or GDN output before o_proj / out_proj
  backend::Matrix q;            // [tokens, heads * head_dim]
  backend::Matrix gate;         // [tokens, heads * head_dim], families with an output gate
  backend::Matrix k, v;         // [tokens, kv_heads * head_dim]
  backend::Matrix qkv;          // [tokens, conv_channels] GDN
  backend::Matrix z;            // [tokens, value_heads * value_dim] GDN
  backend::Matrix a, b;         // [tokens, value_heads] GDN
  backend::Matrix mlp_gate;     // [tokens, intermediate] of dense MLPs and of shared experts
  backend::Matrix mlp_up;       // [tokens, intermediate]
  backend::Matrix block;        // [tokens, hidden] a block's output before the residual add; MoE, and with a probe all
  backend::Matrix router;       // [tokens, experts]
  backend::Matrix shared;       // [tokens, hidden] output of the shared expert
  backend::Matrix shared_gate;  // [tokens, 1]

  // kResourceExhausted names the bytes that could not be had.
  static Expected<Activations> allocate(backend::Backend& backend, const ModelSpec& spec, std::int64_t tokens);
  // Floats per token of all buffers, the backend's rows of expert activations included.
  static std::int64_t floats_per_token(const ModelSpec& spec);
};

// Columns of every buffer that a model allocates, these and the head's input: for plans.
std::vector<std::int64_t> activation_columns(const ModelSpec& spec);

// The first `rows` rows of a buffer.
backend::Matrix top(backend::Matrix buffer, std::int64_t rows);
// Columns [begin, begin + cols).
backend::Matrix columns(backend::Matrix matrix, std::int64_t begin, std::int64_t cols);
// … and the first `cols` columns of them, still at the buffer's stride.
backend::Matrix top(backend::Matrix buffer, std::int64_t rows, std::int64_t cols);

}  // namespace sterling::model
