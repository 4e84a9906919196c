#include "lab/announced_families.h"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "lab/inspect_dimensions.h"

namespace sterling::lab {
namespace {

namespace json = boost::json;
using Wanted = model::WeightBinder::Wanted;

// Bounds under which no size of a tensor and no sum of them leaves 63 bits, and no list leaves memory.
constexpr std::int64_t kLargest = 1 << 20;
constexpr std::int64_t kMostExpertLayers = std::int64_t{1} << 18;  // layers * (experts + 1)

// Collects tensors; a size that is missing makes the whole list worthless, which `complete` remembers.
class Lister {
 public:
  explicit Lister(const json::object& sizes) : sizes_(sizes) {}
  // Sizes may be 0 only where `may_be_absent` says so, and are then 0 when absent.
  std::int64_t size(std::string_view key, bool may_be_absent = false) {
    const auto value = config_integer(sizes_, {key});
    const bool fine = value ? *value <= kLargest && (*value > 0 || may_be_absent) : may_be_absent;
    if (!fine) complete_ = false;
    return fine ? value.value_or(0) : 1;
  }
  bool flag(std::string_view key, bool absent) const {
    const json::value* value = sizes_.if_contains(key);
    return value != nullptr && value->is_bool() ? value->get_bool() : absent;
  }
  // For what a family can have and is not listed here: the count would be wrong.
  void require(bool condition) { complete_ = complete_ && condition; }
  bool complete() const { return complete_; }

  void matrix(std::string name, std::vector<std::int64_t> shape) {
    add(std::move(name), std::move(shape), Wanted::Kind::kMatrix);
  }
  void plain(std::string name, std::vector<std::int64_t> shape) {
    add(std::move(name), std::move(shape), Wanted::Kind::kVector);
  }
  void linear(const std::string& module, std::int64_t rows, std::int64_t cols, bool bias = false) {
    matrix(module + ".weight", {rows, cols});
    if (bias) plain(module + ".bias", {rows});
  }
  // gate, up and down of a gated MLP by these names.
  void gated_mlp(const std::string& prefix, std::int64_t hidden, std::int64_t width,
                 const std::array<std::string_view, 3>& names = {"gate_proj", "up_proj", "down_proj"}) {
    linear(fmt::format("{}{}", prefix, names[0]), width, hidden);
    linear(fmt::format("{}{}", prefix, names[1]), width, hidden);
    linear(fmt::format("{}{}", prefix, names[2]), hidden, width);
  }
  std::vector<Wanted> take() { return std::move(tensors_); }

 private:
  void add(std::string name, std::vector<std::int64_t> shape, Wanted::Kind kind) {
    std::int64_t elements = 1;
    for (const std::int64_t extent : shape) {
      if (extent < 0 || extent > (std::int64_t{1} << 40) / elements) {
        complete_ = false;
        return;
      }
      elements = extent == 0 ? elements : elements * extent;
    }
    tensors_.push_back({std::move(name), std::move(shape), kind});
  }

  const json::object& sizes_;
  bool complete_ = true;
  std::vector<Wanted> tensors_;
};

void list_ends(Lister& list, const std::string& prefix, std::string_view embedding, std::string_view norm, bool tied) {
  const std::int64_t hidden = list.size("hidden_size");
  const std::int64_t vocab = list.size("vocab_size");
  list.plain(fmt::format("{}{}.weight", prefix, embedding), {vocab, hidden});
  list.plain(fmt::format("{}{}.weight", prefix, norm), {hidden});
  // A Linear like others: it is the metadata that leaves it alone.
  if (!tied) list.linear("lm_head", vocab, hidden);
}

// --- DeepSeek-V3 and R1: latent attention, the first layers dense, and an MTP layer after the last that stores embedding and head once more

void list_deepseek_attention(Lister& list, const std::string& layer) {
  const std::int64_t hidden = list.size("hidden_size");
  const std::int64_t heads = list.size("num_attention_heads");
  const std::int64_t query_rank = list.size("q_lora_rank");
  const std::int64_t kv_rank = list.size("kv_lora_rank");
  const std::int64_t nope = list.size("qk_nope_head_dim");
  const std::int64_t rope = list.size("qk_rope_head_dim");
  const std::int64_t value = list.size("v_head_dim");
  const std::string attention = layer + "self_attn.";
  list.linear(attention + "q_a_proj", query_rank, hidden);
  list.plain(attention + "q_a_layernorm.weight", {query_rank});
  list.linear(attention + "q_b_proj", heads * (nope + rope), query_rank);
  list.linear(attention + "kv_a_proj_with_mqa", kv_rank + rope, hidden);
  list.plain(attention + "kv_a_layernorm.weight", {kv_rank});
  list.linear(attention + "kv_b_proj", heads * (nope + value), kv_rank);
  list.linear(attention + "o_proj", hidden, heads * value);
  list.plain(layer + "input_layernorm.weight", {hidden});
  list.plain(layer + "post_attention_layernorm.weight", {hidden});
}

FamilyLayout list_deepseek(Lister& list, const ModelDimensions& dimensions) {
  FamilyLayout layout;
  const std::int64_t hidden = list.size("hidden_size");
  const std::int64_t width = list.size("moe_intermediate_size");
  const std::int64_t shared = list.size("n_shared_experts", true) * width;
  const std::int64_t dense = list.size("first_k_dense_replace", true);
  const std::int64_t mtp = *dimensions.mtp_layers;
  const std::int64_t experts = *dimensions.experts;
  list.require(list.size("moe_layer_freq") == 1 && !list.flag("attention_bias", false));
  list_ends(list, "model.", "embed_tokens", "norm", list.flag("tie_word_embeddings", false));
  for (std::int64_t i = 0; i < *dimensions.layers + mtp && list.complete(); ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i);
    list_deepseek_attention(list, layer);
    if (i < dense) {
      list.gated_mlp(layer + "mlp.", hidden, list.size("intermediate_size"));
    } else {
      list.plain(layer + "mlp.gate.weight", {experts, hidden});
      list.plain(layer + "mlp.gate.e_score_correction_bias", {experts});
      for (std::int64_t e = 0; e < experts; ++e) {
        list.gated_mlp(fmt::format("{}mlp.experts.{}.", layer, e), hidden, width);
      }
      if (shared > 0) list.gated_mlp(layer + "mlp.shared_experts.", hidden, shared);
    }
    if (i < *dimensions.layers) continue;
    const std::int64_t vocab = list.size("vocab_size");
    list.plain(layer + "embed_tokens.weight", {vocab, hidden});
    list.plain(layer + "shared_head.head.weight", {vocab, hidden});
    list.plain(layer + "eh_proj.weight", {hidden, 2 * hidden});
    for (const std::string_view norm : {"enorm", "hnorm", "shared_head.norm"}) {
      list.plain(fmt::format("{}{}.weight", layer, norm), {hidden});
    }
  }
  layout.fp32_suffix = "e_score_correction_bias";
  layout.block_scales = DType::kF32;
  return layout;
}

// --- MiniMax-M2: QK-norm over all heads at once, experts as Mixtral names them

FamilyLayout list_minimax(Lister& list, const ModelDimensions& dimensions) {
  FamilyLayout layout;
  const std::int64_t hidden = list.size("hidden_size");
  const std::int64_t width = list.size("intermediate_size");
  const std::int64_t queries = *dimensions.heads * *dimensions.head_dim;
  const std::int64_t keys = *dimensions.kv_heads * *dimensions.head_dim;
  const std::int64_t experts = *dimensions.experts;
  list.require(list.size("shared_intermediate_size", true) == 0);
  list_ends(list, "model.", "embed_tokens", "norm", list.flag("tie_word_embeddings", false));
  for (std::int64_t i = 0; i < *dimensions.layers && list.complete(); ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i);
    list.linear(layer + "self_attn.q_proj", queries, hidden);
    list.linear(layer + "self_attn.k_proj", keys, hidden);
    list.linear(layer + "self_attn.v_proj", keys, hidden);
    list.linear(layer + "self_attn.o_proj", hidden, queries);
    if (list.flag("use_qk_norm", false)) {
      list.plain(layer + "self_attn.q_norm.weight", {queries});
      list.plain(layer + "self_attn.k_norm.weight", {keys});
    }
    list.plain(layer + "input_layernorm.weight", {hidden});
    list.plain(layer + "post_attention_layernorm.weight", {hidden});
    list.plain(layer + "block_sparse_moe.gate.weight", {experts, hidden});
    if (list.flag("use_routing_bias", false)) {
      list.plain(layer + "block_sparse_moe.e_score_correction_bias", {experts});
    }
    for (std::int64_t e = 0; e < experts; ++e) {
      list.gated_mlp(fmt::format("{}block_sparse_moe.experts.{}.", layer, e), hidden, width, {"w1", "w3", "w2"});
    }
  }
  layout.fp32_suffix = "e_score_correction_bias";
  if (*dimensions.mtp_layers > 0) {
    layout.mtp_note =
        fmt::format("announces {} MTP modules, which the published files of this family do not hold: counted as none",
                    *dimensions.mtp_layers);
  }
  return layout;
}

// --- Nemotron-H: one block per layer, of the kind that a letter of the pattern says

void list_mamba(Lister& list, const std::string& mixer) {
  const std::int64_t hidden = list.size("hidden_size");
  const std::int64_t heads = list.size("mamba_num_heads");
  const std::int64_t inner = heads * list.size("mamba_head_dim");
  const std::int64_t channels = inner + 2 * list.size("n_groups") * list.size("ssm_state_size");
  const bool bias = list.flag("use_bias", false) || list.flag("mamba_proj_bias", false);
  list.linear(mixer + "in_proj", inner + channels + heads, hidden, bias);
  list.linear(mixer + "out_proj", hidden, inner, bias);
  list.plain(mixer + "conv1d.weight", {channels, 1, list.size("conv_kernel")});
  if (list.flag("use_conv_bias", true)) list.plain(mixer + "conv1d.bias", {channels});
  list.plain(mixer + "norm.weight", {inner});
  for (const std::string_view name : {"A_log", "D", "dt_bias"}) list.plain(fmt::format("{}{}", mixer, name), {heads});
}

void list_nemotron_experts(Lister& list, const std::string& mixer, std::int64_t experts) {
  const std::int64_t hidden = list.size("hidden_size");
  const std::int64_t width = list.size("moe_intermediate_size");
  const std::int64_t shared = list.size("moe_shared_expert_intermediate_size", true);
  list.plain(mixer + "gate.weight", {experts, hidden});
  list.plain(mixer + "gate.e_score_correction_bias", {experts});
  for (std::int64_t e = 0; e < experts; ++e) {
    list.linear(fmt::format("{}experts.{}.up_proj", mixer, e), width, hidden);
    list.linear(fmt::format("{}experts.{}.down_proj", mixer, e), hidden, width);
  }
  if (shared == 0) return;
  list.linear(mixer + "shared_experts.up_proj", shared, hidden);
  list.linear(mixer + "shared_experts.down_proj", hidden, shared);
}

FamilyLayout list_nemotron(Lister& list, const json::object& text, const ModelDimensions& dimensions) {
  FamilyLayout layout;
  const json::value* pattern = text.if_contains("hybrid_override_pattern");
  list.require(pattern != nullptr && pattern->is_string() &&
               static_cast<std::int64_t>(pattern->get_string().size()) == *dimensions.layers);
  // More than one shared expert, and experts in a space of their own, are not listed here.
  list.require(list.size("n_shared_experts", true) <= 1 && list.size("moe_latent_size", true) == 0);
  const std::int64_t hidden = list.size("hidden_size");
  const std::int64_t queries = *dimensions.heads * *dimensions.head_dim;
  const std::int64_t keys = *dimensions.kv_heads * *dimensions.head_dim;
  list_ends(list, "backbone.", "embeddings", "norm_f", list.flag("tie_word_embeddings", false));
  for (std::int64_t i = 0; i < *dimensions.layers && list.complete(); ++i) {
    const std::string layer = fmt::format("backbone.layers.{}.", i);
    const std::string mixer = layer + "mixer.";
    list.plain(layer + "norm.weight", {hidden});
    switch (pattern->get_string()[static_cast<std::size_t>(i)]) {
      case 'M': list_mamba(list, mixer); break;
      case 'E': list_nemotron_experts(list, mixer, *dimensions.experts); break;
      case '-':
        list.linear(mixer + "up_proj", list.size("intermediate_size"), hidden, list.flag("mlp_bias", false));
        list.linear(mixer + "down_proj", hidden, list.size("intermediate_size"), list.flag("mlp_bias", false));
        break;
      case '*': {
        const bool bias = list.flag("attention_bias", false);
        list.linear(mixer + "q_proj", queries, hidden, bias);
        list.linear(mixer + "k_proj", keys, hidden, bias);
        list.linear(mixer + "v_proj", keys, hidden, bias);
        list.linear(mixer + "o_proj", hidden, queries, bias);
        break;
      }
      default: list.require(false);
    }
  }
  layout.fp32_suffix = "e_score_correction_bias";
  return layout;
}

// --- gpt-oss: biases everywhere, sinks, experts in fused matrices that are MXFP4 in the published files

FamilyLayout list_gpt_oss(Lister& list, const ModelDimensions& dimensions) {
  FamilyLayout layout;
  const std::int64_t hidden = list.size("hidden_size");
  const std::int64_t width = list.size("intermediate_size");
  const std::int64_t queries = *dimensions.heads * *dimensions.head_dim;
  const std::int64_t keys = *dimensions.kv_heads * *dimensions.head_dim;
  const std::int64_t experts = *dimensions.experts;
  const bool bias = list.flag("attention_bias", true);
  list_ends(list, "model.", "embed_tokens", "norm", list.flag("tie_word_embeddings", false));
  for (std::int64_t i = 0; i < *dimensions.layers && list.complete(); ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i);
    list.linear(layer + "self_attn.q_proj", queries, hidden, bias);
    list.linear(layer + "self_attn.k_proj", keys, hidden, bias);
    list.linear(layer + "self_attn.v_proj", keys, hidden, bias);
    list.linear(layer + "self_attn.o_proj", hidden, queries, bias);
    list.plain(layer + "self_attn.sinks", {*dimensions.heads});
    list.plain(layer + "input_layernorm.weight", {hidden});
    list.plain(layer + "post_attention_layernorm.weight", {hidden});
    list.plain(layer + "mlp.router.weight", {experts, hidden});
    list.plain(layer + "mlp.router.bias", {experts});
    list.matrix(layer + "mlp.experts.gate_up_proj", {experts, 2 * width, hidden});
    list.plain(layer + "mlp.experts.gate_up_proj_bias", {experts, 2 * width});
    list.matrix(layer + "mlp.experts.down_proj", {experts, hidden, width});
    list.plain(layer + "mlp.experts.down_proj_bias", {experts, hidden});
  }
  layout.plain = DType::kBF16;
  return layout;
}

// --- Gemma 4: sliding and full layers of different head sizes, experts beside a dense MLP, a vision tower

void list_gemma_attention(Lister& list, const std::string& layer, const ModelDimensions& dimensions, bool full) {
  const std::int64_t hidden = list.size("hidden_size");
  const std::int64_t global_heads = list.size("num_global_key_value_heads", true);
  const std::int64_t head_dim = full ? list.size("global_head_dim") : *dimensions.head_dim;
  const std::int64_t kv_heads = full && global_heads > 0 ? global_heads : *dimensions.kv_heads;
  const std::string attention = layer + "self_attn.";
  list.linear(attention + "q_proj", *dimensions.heads * head_dim, hidden);
  list.linear(attention + "k_proj", kv_heads * head_dim, hidden);
  // Full layers may use their keys as values.
  if (!full || !list.flag("attention_k_eq_v", false)) list.linear(attention + "v_proj", kv_heads * head_dim, hidden);
  list.linear(attention + "o_proj", hidden, *dimensions.heads * head_dim);
  list.plain(attention + "q_norm.weight", {head_dim});
  list.plain(attention + "k_norm.weight", {head_dim});
}

void list_gemma_layer(Lister& list, const std::string& layer, std::int64_t experts) {
  const std::int64_t hidden = list.size("hidden_size");
  for (const std::string_view norm :
       {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"}) {
    list.plain(fmt::format("{}{}.weight", layer, norm), {hidden});
  }
  list.plain(layer + "layer_scalar", {1});
  list.gated_mlp(layer + "mlp.", hidden, list.size("intermediate_size"));
  if (experts == 0) return;
  const std::int64_t width = list.size("moe_intermediate_size");
  for (const std::string_view norm :
       {"pre_feedforward_layernorm_2", "post_feedforward_layernorm_1", "post_feedforward_layernorm_2"}) {
    list.plain(fmt::format("{}{}.weight", layer, norm), {hidden});
  }
  list.plain(layer + "router.scale", {hidden});
  list.plain(layer + "router.per_expert_scale", {experts});
  list.plain(layer + "router.proj.weight", {experts, hidden});
  list.matrix(layer + "experts.gate_up_proj", {experts, 2 * width, hidden});
  list.matrix(layer + "experts.down_proj", {experts, hidden, width});
}

void list_gemma_vision(Lister& list, const json::object& config) {
  const json::value* section = config.if_contains("vision_config");
  if (section == nullptr || !section->is_object()) return;
  Lister vision(section->get_object());
  const std::int64_t hidden = vision.size("hidden_size");
  const std::int64_t head_dim = vision.size("head_dim");
  const std::int64_t queries = vision.size("num_attention_heads") * head_dim;
  const std::int64_t keys = vision.size("num_key_value_heads") * head_dim;
  const std::int64_t patch = vision.size("patch_size");
  const std::int64_t layers = vision.size("num_hidden_layers");
  const std::string tower = "model.vision_tower.";
  vision.require(layers <= 1024);
  for (std::int64_t i = 0; i < layers && vision.complete(); ++i) {
    const std::string layer = fmt::format("{}encoder.layers.{}.", tower, i);
    list.linear(layer + "self_attn.q_proj.linear", queries, hidden);
    list.linear(layer + "self_attn.k_proj.linear", keys, hidden);
    list.linear(layer + "self_attn.v_proj.linear", keys, hidden);
    list.linear(layer + "self_attn.o_proj.linear", hidden, queries);
    list.plain(layer + "self_attn.q_norm.weight", {head_dim});
    list.plain(layer + "self_attn.k_norm.weight", {head_dim});
    list.gated_mlp(layer + "mlp.", hidden, vision.size("intermediate_size"),
                   {"gate_proj.linear", "up_proj.linear", "down_proj.linear"});
    for (const std::string_view norm :
         {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"}) {
      list.plain(fmt::format("{}{}.weight", layer, norm), {hidden});
    }
  }
  list.plain(tower + "patch_embedder.position_embedding_table", {2, vision.size("position_embedding_size"), hidden});
  list.matrix(tower + "patch_embedder.input_proj.weight", {hidden, 3 * patch * patch});
  if (vision.flag("standardize", false)) {
    list.plain(tower + "std_bias", {hidden});
    list.plain(tower + "std_scale", {hidden});
  }
  list.matrix("model.embed_vision.embedding_projection.weight", {list.size("hidden_size"), hidden});
  list.require(vision.complete());
}

FamilyLayout list_gemma(Lister& list, const json::object& config, const json::object& text,
                        const ModelDimensions& dimensions) {
  const json::value* types = text.if_contains("layer_types");
  const json::value* audio = config.if_contains("audio_config");
  list.require(types != nullptr && types->is_array() &&
               static_cast<std::int64_t>(types->get_array().size()) == *dimensions.layers);
  // The small models' parts, which are not listed here: per-layer inputs, shared K and V, wider MLPs, an audio tower.
  list.require(list.size("hidden_size_per_layer_input", true) == 0 && list.size("num_kv_shared_layers", true) == 0 &&
               !list.flag("use_double_wide_mlp", false) && (audio == nullptr || audio->is_null()));
  const std::int64_t experts = list.flag("enable_moe_block", false) ? *dimensions.experts : 0;
  const std::string prefix = "model.language_model.";
  list_ends(list, prefix, "embed_tokens", "norm", list.flag("tie_word_embeddings", true));
  for (std::int64_t i = 0; i < *dimensions.layers && list.complete(); ++i) {
    const std::string layer = fmt::format("{}layers.{}.", prefix, i);
    const json::value& type = types->get_array()[static_cast<std::size_t>(i)];
    list_gemma_attention(list, layer, dimensions, type.is_string() && type.get_string() == "full_attention");
    list_gemma_layer(list, layer, experts);
  }
  list_gemma_vision(list, config);
  return {};
}

}  // namespace

std::optional<FamilyLayout> list_family(const json::object& config, const ModelDimensions& dimensions) {
  const std::string& type = dimensions.model_type;
  const auto small = [](const std::optional<std::int64_t>& value) { return value && *value <= kLargest; };
  const bool latent = type == "deepseek_v3";  // its heads have sizes of their own
  if (!small(dimensions.layers) || !small(dimensions.heads) || !small(dimensions.kv_heads) ||
      (!latent && !small(dimensions.head_dim)) || !small(dimensions.experts) || !small(dimensions.mtp_layers) ||
      (*dimensions.layers + *dimensions.mtp_layers) * (*dimensions.experts + 1) > kMostExpertLayers) {
    return std::nullopt;
  }
  const json::object& text = text_config(config);
  Lister list(text);
  FamilyLayout layout;
  if (latent) {
    layout = list_deepseek(list, dimensions);
  } else if (type == "minimax_m2") {
    layout = list_minimax(list, dimensions);
  } else if (type == "nemotron_h") {
    layout = list_nemotron(list, text, dimensions);
  } else if (type == "gpt_oss") {
    layout = list_gpt_oss(list, dimensions);
  } else if (type == "gemma4") {
    layout = list_gemma(list, config, text, dimensions);
  } else {
    return std::nullopt;
  }
  if (!list.complete()) return std::nullopt;
  layout.tensors = list.take();
  return layout;
}

}  // namespace sterling::lab
