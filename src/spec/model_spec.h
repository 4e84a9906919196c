// A model, described: typed and validated, made from config.json by the family's file in model/arch/. Every number here has been
// checked against its range, so that products of any four of them fit 63 bits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sterling {

enum class RopeType { kDefault, kLinear, kLlama3 };

// Rotary position embedding (Su et al. 2021), rotate-half pairing: dim i turns with dim i + rotary_dim / 2.
struct RopeSpec {
  RopeType type = RopeType::kDefault;
  double theta = 10000.0;
  std::int32_t rotary_dim = 0;             // even; the first rotary_dim dims of a head turn, the rest stay
  double factor = 1.0;                     // linear, llama3
  double low_freq_factor = 1.0;            // llama3
  double high_freq_factor = 4.0;           // llama3
  std::int32_t original_max_position = 0;  // llama3
  std::vector<float>
      freq_divisors;  // GGUF's rope_freqs.weight: per-frequency divisors that replace the scaling; else empty
};

// Softmax attention with grouped KV heads.
struct AttentionSpec {
  std::int32_t heads = 0;
  std::int32_t kv_heads = 0;  // divides heads; query head j reads KV head j / (heads / kv_heads)
  std::int32_t head_dim = 0;  // even
  float scale = 0.0F;         // head_dim^-1/2
  bool qkv_bias = false;      // Qwen2: bias on q, k and v, none on o
  bool qk_norm = false;       // RMSNorm over head_dim on q and k before RoPE
  bool output_gate = false;   // Qwen3.5: q_proj also gives a sigmoid gate for the attention output
  RopeSpec rope;
};

// Gated DeltaNet (linear attention with a state of fixed size).
struct GdnSpec {
  std::int32_t key_heads = 0;
  std::int32_t value_heads = 0;  // multiple of key_heads; value head h uses key head h / (value_heads / key_heads)
  std::int32_t key_dim = 0;
  std::int32_t value_dim = 0;
  std::int32_t conv_kernel = 0;

  std::int32_t conv_channels() const { return 2 * key_heads * key_dim + value_heads * value_dim; }
};

// Mixture of experts: of `experts` SwiGLU networks the router picks experts_per_token for each token.
struct MoeSpec {
  std::int32_t experts = 0;
  std::int32_t experts_per_token = 0;    // at most `experts`
  std::int32_t intermediate = 0;         // of each expert
  std::int32_t shared_intermediate = 0;  // of the expert that every token passes, scaled by a sigmoid; 0: there is none
  bool norm_topk = true;                 // the picked experts' probabilities are divided by their sum
};

enum class LayerKind { kFullAttention, kLinearAttention };

struct ModelSpec {
  std::string architecture;  // as in config.json: "Qwen3_5ForConditionalGeneration"
  std::string model_type;
  std::int32_t vocab_size = 0;
  std::int32_t hidden_size = 0;
  std::int32_t intermediate_size = 0;  // of dense MLPs; 0 where every layer has experts
  std::int32_t max_position_embeddings = 0;
  float rms_norm_eps = 1e-6F;
  bool zero_centered_norm = false;  // checkpoint stores w, the norm multiplies by 1 + w
  bool tie_word_embeddings = false;
  std::string tensor_prefix = "model.";  // of the text model's tensors
  std::vector<LayerKind> layers;
  AttentionSpec attention;
  std::optional<GdnSpec> gdn;
  std::optional<MoeSpec> moe;
  std::vector<bool> moe_layers;  // with `moe`: which layers have experts in place of a dense MLP; one entry per layer
  std::int32_t mtp_layers = 0;   // recognised, not run
  bool has_vision = false;       // vision tensors are known and skipped
  std::vector<std::int32_t> eos_token_ids;  // of config.json alone

  std::int32_t layer_count() const { return static_cast<std::int32_t>(layers.size()); }
  bool has_experts(std::int32_t layer) const { return moe && moe_layers[static_cast<std::size_t>(layer)]; }
  std::int32_t count(LayerKind kind) const {
    std::int32_t n = 0;
    for (const LayerKind layer : layers) n += layer == kind ? 1 : 0;
    return n;
  }
};

// Which slice of every matrix a rank holds. One rank holds the whole; tensor parallelism is a backend matter that starts here.
struct ShardSpec {
  std::int32_t rank = 0;
  std::int32_t ranks = 1;
};

}  // namespace sterling
