#include "lab/inspect_weights.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "formats/sorted_tensors.h"

namespace sterling::lab {
namespace {

// The order of the table.
constexpr std::array<std::string_view, 13> kGroups{
    "embedding", "attention", "linear_attention", "mlp",   "router", "routed_experts", "shared_expert", "norms",
    "lm_head",   "mtp",       "vision",           "audio", "other"};

// What scales hang on.
constexpr std::array<std::string_view, 16> kScaleSuffixes{".weight_global_scale",
                                                          ".input_global_scale",
                                                          ".weight_scale_inv",
                                                          ".weight_scale_2",
                                                          ".weight_zero_point",
                                                          ".weight_scale",
                                                          ".weight_shape",
                                                          ".weight_g_idx",
                                                          ".input_scale",
                                                          ".output_scale",
                                                          ".pre_quant_scale",
                                                          ".k_scale",
                                                          ".v_scale",
                                                          ".kv_scale",
                                                          ".k_bias",
                                                          ".v_bias"};

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// The number after ".layers." or at the start after "layers."; -1 without one.
std::int64_t layer_index(std::string_view name) {
  constexpr std::string_view kKey = "layers.";
  const std::size_t at = name.find(kKey);
  if (at == std::string_view::npos || (at > 0 && name[at - 1] != '.')) return -1;
  std::int64_t index = -1;
  const std::string_view rest = name.substr(at + kKey.size());
  std::from_chars(rest.data(), rest.data() + rest.size(), index);
  return index;
}

// Is one of the dotted parts of the name a norm ("input_layernorm", "q_norm", "norm")?
bool is_norm(std::string_view name) {
  constexpr std::string_view kEnd = "norm";
  for (std::size_t at = name.find(kEnd); at != std::string_view::npos; at = name.find(kEnd, at + 1)) {
    const std::size_t end = at + kEnd.size();
    if (end == name.size() || name[end] == '.') return true;
  }
  return contains(name, ".norm_f.");  // Mamba families
}

// The tensors, sorted by name, and the one that is being looked at: what belongs to it lies near.
struct Neighbours {
  std::span<const TensorView> tensors;
  std::size_t at = 0;
};

const TensorView* find(const Neighbours& near, std::string_view module, std::string_view suffix) {
  std::string name;
  name.reserve(module.size() + suffix.size());
  name.append(module).append(suffix);
  const std::size_t found = formats::find_near(near.tensors, near.at, name);
  return found == near.tensors.size() ? nullptr : &near.tensors[found];
}

// "up_proj.weight" → "up_proj"; fused experts have no ".weight".
std::string_view module_of(std::string_view name) {
  for (const std::string_view suffix : {".weight_packed", ".weight", "_blocks"}) {
    if (name.ends_with(suffix)) return name.substr(0, name.size() - suffix.size());
  }
  return name;
}

struct StoredWeight {
  std::string format;
  std::optional<std::int64_t> parameters;
  bool quantised = false;
  std::string problem;  // why the stored form can't be read
};

std::string fp8_format(std::string_view base, const TensorView& weight, const TensorView& scale) {
  if (scale.dtype == DType::kU8 || scale.dtype == DType::kF8E8M0) return "mxfp8";
  const std::int64_t count = scale.elements();
  if (count == 1) return fmt::format("{}_tensor", base);
  const std::int64_t rows = weight.shape.empty() ? 1 : weight.shape[0];
  if (count == rows) return fmt::format("{}_channel", base);
  return fmt::format("{}_block", base);
}

StoredWeight describe_fp8(const TensorView& tensor, std::string_view base, const Neighbours& tensors) {
  const std::string_view module = module_of(tensor.name);
  StoredWeight stored{std::string(base), tensor.elements(), true, {}};
  if (const TensorView* scale = find(tensors, module, ".weight_scale_inv")) {
    stored.format = scale->elements() == 1 ? fmt::format("{}_tensor", base) : fmt::format("{}_block", base);
  } else if (const TensorView* plain = find(tensors, module, ".weight_scale")) {
    stored.format = fp8_format(base, tensor, *plain);
  } else {
    stored.problem =
        fmt::format("is {} and has neither a .weight_scale nor a .weight_scale_inv", dtype_name(tensor.dtype));
  }
  return stored;
}

// Two four-bit values per byte, with block scales beside them.
StoredWeight describe_packed_bytes(const TensorView& tensor, const Neighbours& tensors) {
  const std::string_view module = module_of(tensor.name);
  if (tensor.name.ends_with("_blocks")) {  // gpt-oss: …_blocks and …_scales
    if (find(tensors, module, "_scales") != nullptr) return {"mxfp4", tensor.elements() * 2, true, {}};
    return {"u8", std::nullopt, true, "is U8 and has no _scales tensor beside it"};
  }
  const TensorView* scale = find(tensors, module, ".weight_scale");
  if (scale == nullptr) return {"u8", std::nullopt, true, "is U8 and has no .weight_scale"};
  if (scale->dtype == DType::kU8 || scale->dtype == DType::kF8E8M0) return {"mxfp4", tensor.elements() * 2, true, {}};
  if (scale->dtype != DType::kF8E4M3) {
    return {"u8", std::nullopt, true,
            fmt::format("is U8 with a {} .weight_scale; known are F8_E4M3 (NVFP4) and U8 (MXFP4)",
                        dtype_name(scale->dtype))};
  }
  StoredWeight stored{"nvfp4", tensor.elements() * 2, true, {}};
  if (find(tensors, module, ".weight_scale_2") == nullptr && find(tensors, module, ".weight_global_scale") == nullptr) {
    stored.problem = "is NVFP4 and has neither a .weight_scale_2 nor a .weight_global_scale";
  }
  return stored;
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c); });
  return result;
}

StoredWeight describe(const TensorView& tensor, const Neighbours& tensors) {
  switch (tensor.dtype) {
    case DType::kBF16: return {"bf16", tensor.elements(), false, {}};
    case DType::kF16: return {"fp16", tensor.elements(), false, {}};
    case DType::kF32: return {"fp32", tensor.elements(), false, {}};
    case DType::kF64: return {"fp64", tensor.elements(), false, {}};
    case DType::kF8E4M3: return describe_fp8(tensor, "fp8_e4m3", tensors);
    case DType::kF8E5M2: return describe_fp8(tensor, "fp8_e5m2", tensors);
    case DType::kU8: return describe_packed_bytes(tensor, tensors);
    case DType::kF4E2M1: return {"fp4_e2m1", tensor.elements(), true, {}};
    case DType::kI8: return {"int8", tensor.elements(), true, {}};
    default: break;
  }
  if (is_block_dtype(tensor.dtype)) return {lower(dtype_name(tensor.dtype)), tensor.elements(), true, {}};
  return {lower(dtype_name(tensor.dtype)), std::nullopt, true, {}};  // integers: some packing that is not known here
}

// Adds to a count that is lost once a part of it is unknown.
void add(std::optional<std::int64_t>& sum, const std::optional<std::int64_t>& value) {
  if (sum && value) {
    *sum += *value;
  } else {
    sum.reset();
  }
}

struct Sums {
  std::map<std::pair<std::string_view, std::string>, WeightGroup> rows;
  ParameterCounts parameters{0, 0, 0, 0, {}};
  std::optional<std::int64_t> routed = 0;
  ByteCounts bytes;

  void count(std::string_view group, const std::string& format, const TensorView& tensor,
             const std::optional<std::int64_t>& weights) {
    // From the shape, as an announced tensor has no data; readers have checked that both agree.
    const auto size =
        static_cast<std::int64_t>(dtype_bytes(tensor.dtype, static_cast<std::uint64_t>(tensor.elements())).value_or(0));
    WeightGroup& row =
        rows.try_emplace({group, format}, WeightGroup{std::string(group), format, 0, 0, 0}).first->second;
    ++*row.tensors;
    row.bytes += size;
    add(row.parameters, weights);
    add(parameters.total, weights);
    bytes.total += size;
    if (group == "mtp") {
      add(parameters.mtp, weights);
      bytes.mtp += size;
    } else if (group == "vision") {
      add(parameters.vision, weights);
      bytes.vision += size;
    } else if (group != "audio") {
      add(parameters.text, weights);
      bytes.text += size;
    }
    if (group == "routed_experts") add(routed, weights);
  }
};

}  // namespace

std::string_view scaled_module(std::string_view name) {
  if (const std::size_t dot = name.rfind('.'); dot != std::string_view::npos) {
    const std::string_view last = name.substr(dot);
    for (const std::string_view suffix : kScaleSuffixes) {
      if (last == suffix) return name.substr(0, dot);  // compares lengths first
    }
  }
  if (name.ends_with("_scales")) return name.substr(0, name.size() - std::string_view("_scales").size());
  return {};
}

std::string_view weight_group(std::string_view name, std::int64_t layers, bool has_mtp) {
  if (name.starts_with("mtp.") || contains(name, ".mtp.")) return "mtp";
  for (const std::string_view part :
       {"visual.", "vision_tower.", "vision_model.", "embed_vision.", "multi_modal_projector."}) {
    if (contains(name, part)) return "vision";
  }
  if (contains(name, "audio_tower.") || contains(name, "embed_audio.")) return "audio";
  if (has_mtp && layers > 0 && layer_index(name) >= layers) return "mtp";
  if (name.starts_with("lm_head.") || contains(name, ".lm_head.")) return "lm_head";
  if (contains(name, "embed_tokens") || contains(name, "word_embeddings") || contains(name, "backbone.embeddings.")) {
    return "embedding";
  }
  if (is_norm(name)) return "norms";
  if (contains(name, ".shared_expert")) return "shared_expert";
  if (contains(name, ".router.") || contains(name, ".mlp.gate.") || contains(name, ".block_sparse_moe.gate.") ||
      contains(name, ".mixer.gate.") || contains(name, "e_score_correction_bias")) {
    return "router";
  }
  if (contains(name, ".experts.")) return "routed_experts";
  if (contains(name, ".linear_attn.") || contains(name, ".mamba.") || contains(name, ".mixer.in_proj") ||
      contains(name, ".mixer.out_proj") || contains(name, ".mixer.conv1d") || contains(name, ".mixer.A_log") ||
      contains(name, ".mixer.D") || contains(name, ".mixer.dt_bias")) {
    return "linear_attention";
  }
  if (contains(name, ".self_attn.") || contains(name, ".attn.") || contains(name, ".attention.") ||
      contains(name, ".mixer.q_proj") || contains(name, ".mixer.k_proj") || contains(name, ".mixer.v_proj") ||
      contains(name, ".mixer.o_proj")) {
    return "attention";
  }
  if (contains(name, ".mlp.") || contains(name, ".feed_forward.") || contains(name, ".mixer.up_proj") ||
      contains(name, ".mixer.down_proj")) {
    return "mlp";
  }
  return "other";
}

std::optional<std::int64_t> active_parameters(std::int64_t text, std::int64_t routed,
                                              const ModelDimensions& dimensions) {
  if (routed == 0) return text;
  if (dimensions.experts.value_or(0) <= 0 || !dimensions.experts_per_token) return std::nullopt;
  const std::int64_t used = *dimensions.experts_per_token;
  if (used > *dimensions.experts || routed % *dimensions.experts != 0) return std::nullopt;
  return text - routed + routed / *dimensions.experts * used;
}

WeightSummary summarise_weights(std::span<const TensorView> tensors, const ModelDimensions& dimensions) {
  const std::int64_t layers = dimensions.layers.value_or(0);
  const bool has_mtp = dimensions.mtp_layers.value_or(0) > 0;

  WeightSummary summary;
  Sums sums;
  std::vector<std::string> formats(tensors.size());  // of weights, for their scales
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorView& tensor = tensors[i];
    if (!scaled_module(tensor.name).empty()) continue;
    const StoredWeight stored = describe(tensor, {tensors, i});
    formats[i] = stored.format;
    summary.quantised_tensors += stored.quantised ? 1 : 0;
    sums.count(weight_group(tensor.name, layers, has_mtp), stored.format, tensor, stored.parameters);
    if (!stored.problem.empty()) {
      summary.lint.push_back({LintSeverity::kError, "weight_scale_missing", tensor.name,
                              fmt::format("{}: tensor {} {}", tensor.file, tensor.name, stored.problem)});
    }
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorView& tensor = tensors[i];
    const std::string_view module = scaled_module(tensor.name);
    if (module.empty()) continue;
    // K/V scales hang on k_proj and v_proj in one convention and on self_attn in the other: there they have a row of their own.
    const TensorView* owner = nullptr;
    for (const std::string_view suffix : {".weight", ".weight_packed", "_blocks", ""}) {
      if (owner == nullptr) owner = find({tensors, i}, module, suffix);
    }
    const std::string format =
        owner != nullptr ? formats[static_cast<std::size_t>(owner - tensors.data())] : std::string();
    sums.count(weight_group(tensor.name, layers, has_mtp), format.empty() ? lower(dtype_name(tensor.dtype)) : format,
               tensor, 0);
  }

  for (const std::string_view group : kGroups) {
    const std::size_t first = summary.groups.size();
    for (const auto& [key, row] : sums.rows) {
      if (key.first == group) summary.groups.push_back(row);
    }
    std::stable_sort(summary.groups.begin() + static_cast<std::ptrdiff_t>(first), summary.groups.end(),
                     [](const WeightGroup& a, const WeightGroup& b) { return a.bytes > b.bytes; });
  }
  summary.bytes = sums.bytes;
  summary.parameters = sums.parameters;
  if (sums.parameters.text && sums.routed) {
    summary.parameters.active_per_token = active_parameters(*sums.parameters.text, *sums.routed, dimensions);
  }
  return summary;
}

}  // namespace sterling::lab
