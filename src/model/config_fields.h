// Reading of configuration fields that several families share. Bounds are generous, but such that no product of sizes overflows.
#pragma once

#include <optional>
#include <string_view>

#include "formats/object_reader.h"
#include "spec/model_spec.h"

namespace sterling::model {

// vocab_size, hidden_size, max_position_embeddings, rms_norm_eps, hidden_act (silu), eos ids, the keys without effect on inference, and
// intermediate_size, unless the family has no dense MLP.
enum class DenseMlp { kYes, kNo };
void read_common(const formats::ObjectReader& config, ModelSpec& spec, DenseMlp dense = DenseMlp::kYes);

// num_hidden_layers full-attention layers; layer_types, where given, must agree.
void read_full_attention_layers(const formats::ObjectReader& config, ModelSpec& spec);

// layer_types of linear_attention and full_attention; where absent, every full_attention_interval-th layer (4) has attention.
void read_hybrid_layers(const formats::ObjectReader& config, ModelSpec& spec);

// linear_*: Gated DeltaNet.
GdnSpec read_gdn(const formats::ObjectReader& config);

// num_experts, num_experts_per_tok, moe_intermediate_size, norm_topk_prob, and which layers have experts. Call after the layers are read.
struct MoeKeys {
  std::string_view intermediate = "moe_intermediate_size";
  bool shared_expert = false;  // shared_expert_intermediate_size
  // What an absent norm_topk_prob means; empty: the family always renormalises.
  std::optional<bool> norm_topk_default = std::nullopt;
  bool sparse_layers = false;  // decoder_sparse_step and mlp_only_layers are read; else every layer has experts
};
void read_moe(const formats::ObjectReader& config, ModelSpec& spec, const MoeKeys& keys);

// num_attention_heads, num_key_value_heads, head_dim (hidden_size / heads where absent) and RoPE.
void read_attention(const formats::ObjectReader& config, ModelSpec& spec);

// Sliding-window attention must be off.
void refuse_sliding_window(const formats::ObjectReader& config);

// A flag that must have the given value if it is there.
void require_flag(const formats::ObjectReader& config, std::string_view key, bool value, std::string_view reason);

}  // namespace sterling::model
