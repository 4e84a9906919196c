// Reading of configuration fields that several families share. Bounds are generous, but such that no product of sizes overflows.
#pragma once

#include "formats/object_reader.h"
#include "spec/model_spec.h"

namespace sterling::model {

// vocab_size, hidden_size, intermediate_size, max_position_embeddings, rms_norm_eps, hidden_act (silu), eos ids, and the keys
// without effect on inference.
void read_common(const formats::ObjectReader& config, ModelSpec& spec);

// num_hidden_layers full-attention layers; layer_types, where given, must agree.
void read_full_attention_layers(const formats::ObjectReader& config, ModelSpec& spec);

// num_attention_heads, num_key_value_heads, head_dim (hidden_size / heads where absent) and RoPE.
void read_attention(const formats::ObjectReader& config, ModelSpec& spec);

// Sliding-window attention must be off.
void refuse_sliding_window(const formats::ObjectReader& config);

// A flag that must have the given value if it is there.
void require_flag(const formats::ObjectReader& config, std::string_view key, bool value, std::string_view reason);

}  // namespace sterling::model
