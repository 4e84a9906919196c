#include "model/kv_scales.h"

#include <array>
#include <cmath>
#include <filesystem>

#include <fmt/format.h>

#include "quant/decode.h"

namespace sterling::model {
namespace {

constexpr std::array<std::string_view, 4> kKeyNames{"k_proj.k_scale", "k_scale", "attn.k_scale", "k_proj.output_scale"};
constexpr std::array<std::string_view, 4> kValueNames{"v_proj.v_scale", "v_scale", "attn.v_scale",
                                                      "v_proj.output_scale"};
constexpr std::string_view kSharedName = "kv_scale";

// One value, or one per KV head.
Expected<std::vector<float>> read_scale(const TensorView& tensor, const ModelSpec& spec) {
  auto values = quant::decode(tensor);
  if (!values) return values.error();
  const auto heads = static_cast<std::size_t>(spec.attention.kv_heads);
  if (values->size() != 1 && values->size() != heads) {
    return make_error(ErrorCode::kCorrupt,
                      fmt::format("{}: tensor {} holds {} K/V scales; accepted: one, or one for each of {} KV heads",
                                  tensor.file, tensor.name, values->size(), heads),
                      tensor.name);
  }
  for (const float value : *values) {
    if (std::isfinite(value) && value > 0.0F) continue;
    return make_error(ErrorCode::kCorrupt,
                      fmt::format("{}: tensor {} holds the KV scale {}; scales are finite and greater than 0",
                                  tensor.file, tensor.name, value),
                      tensor.name);
  }
  return values;
}

// Empty where the layer has none.
Expected<std::vector<float>> find_scale(const formats::Checkpoint& checkpoint, const ModelSpec& spec,
                                        const std::string& prefix, std::span<const std::string_view> names) {
  for (const std::string_view name : names) {
    if (const TensorView* tensor = checkpoint.find(prefix + std::string(name))) return read_scale(*tensor, spec);
  }
  if (const TensorView* tensor = checkpoint.find(prefix + std::string(kSharedName))) return read_scale(*tensor, spec);
  return std::vector<float>();
}

std::string with_or(std::span<const std::string_view> names) {
  std::string text;
  for (const std::string_view name : names) text += fmt::format("{}{}", text.empty() ? "" : ", ", name);
  return text;
}

// The layer's values by head: one rank holds kv_heads / ranks heads, or, with more ranks than heads, several ranks hold one head each.
Expected<std::vector<float>> heads_of_ranks(const formats::KvScalesFile& file, const ModelSpec& spec,
                                            std::int64_t layer) {
  const auto ranks = static_cast<std::int64_t>(file.ranks.size());
  const std::int64_t heads = spec.attention.kv_heads;
  if (heads % ranks != 0 && ranks % heads != 0) {
    return make_error(
        ErrorCode::kInvalidArgument,
        fmt::format("{}: scales for {} tensor-parallel ranks do not divide {} KV heads", file.path, ranks, heads),
        file.path);
  }
  std::vector<float> values(static_cast<std::size_t>(heads), 0.0F);
  for (std::int64_t head = 0; head < heads; ++head) {
    const std::int64_t first = head * ranks / heads;
    const std::int64_t last = ranks > heads ? (head + 1) * ranks / heads : first + 1;
    for (std::int64_t rank = first; rank < last; ++rank) {
      const auto found = file.ranks[static_cast<std::size_t>(rank)].find(layer);
      if (found == file.ranks[static_cast<std::size_t>(rank)].end()) return std::vector<float>();
      float& value = values[static_cast<std::size_t>(head)];
      if (value != 0.0F && value != found->second) {
        return make_error(ErrorCode::kInvalidArgument,
                          fmt::format("{}: layer {}: ranks {} to {} hold the same KV head and have different scales",
                                      file.path, layer, first, last - 1),
                          file.path);
      }
      value = found->second;
    }
  }
  return values;
}

Status check_heads(const formats::KvScalesFile& file, const ModelSpec& spec, std::int64_t layer,
                   const std::vector<float>& values) {
  if (values.size() == 1 || values.size() == static_cast<std::size_t>(spec.attention.kv_heads)) return {};
  return make_error(ErrorCode::kInvalidArgument,
                    fmt::format("{}: layer {} has {} scales; accepted: one, or one for each of {} KV heads", file.path,
                                layer, values.size(), spec.attention.kv_heads),
                    file.path);
}

void keep(plan::ScalesFound& found, std::int64_t layer, std::vector<float> k, std::vector<float> v) {
  if (k.empty()) found.missing.push_back(fmt::format("layer {} K", layer));
  if (v.empty()) found.missing.push_back(fmt::format("layer {} V", layer));
  found.expected += 2;
  found.scales.k.push_back(std::move(k));
  found.scales.v.push_back(std::move(v));
}

}  // namespace

Expected<plan::ScalesFound> find_kv_scales(const formats::Checkpoint& checkpoint, const ModelSpec& spec) {
  plan::ScalesFound found;
  found.source = "checkpoint";
  const std::string layers = spec.tensor_prefix + "layers.";
  found.looked_for = fmt::format("tensors {}N.self_attn.{{{}; {}; {}}} in {}", layers, with_or(kKeyNames),
                                 with_or(kValueNames), kSharedName, checkpoint.path());
  for (std::int32_t layer = 0; layer < spec.layer_count(); ++layer) {
    if (spec.layers[static_cast<std::size_t>(layer)] != LayerKind::kFullAttention) continue;
    const std::string prefix = fmt::format("{}{}.self_attn.", layers, layer);
    auto k = find_scale(checkpoint, spec, prefix, kKeyNames);
    if (!k) return k.error();
    auto v = find_scale(checkpoint, spec, prefix, kValueNames);
    if (!v) return v.error();
    keep(found, layer, std::move(*k), std::move(*v));
  }
  return found;
}

Expected<plan::ScalesFound> kv_scales_from_file(const formats::KvScalesFile& file, const ModelSpec& spec) {
  plan::ScalesFound found;
  found.source = "file " + std::filesystem::path(file.path).filename().string();
  found.looked_for = fmt::format("every full-attention layer in {}", file.path);
  const auto has_cache = [&](std::int64_t layer) {
    return layer < spec.layer_count() && spec.layers[static_cast<std::size_t>(layer)] == LayerKind::kFullAttention;
  };
  for (const auto& [layer, values] : file.layers) {
    // vLLM's and SGLang's form lists every layer of the model.
    if (has_cache(layer) || (file.shape == "vllm" && layer < spec.layer_count())) continue;
    return make_error(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "{}: has scales for layer {}, which has no KV cache in this model of {} layers; is the file made for "
            "another model?",
            file.path, layer, spec.layer_count()),
        file.path);
  }
  for (std::int32_t layer = 0; layer < spec.layer_count(); ++layer) {
    if (!has_cache(layer)) continue;
    std::vector<float> k;
    std::vector<float> v;
    if (file.ranks.size() > 1) {
      auto values = heads_of_ranks(file, spec, layer);
      if (!values) return values.error();
      k = v = *values;
    } else if (const auto at = file.layers.find(layer); at != file.layers.end()) {
      k = at->second.k;
      v = at->second.v;
      if (Status status = check_heads(file, spec, layer, k); !status) return status.error();
      if (Status status = check_heads(file, spec, layer, v); !status) return status.error();
    }
    keep(found, layer, std::move(k), std::move(v));
  }
  return found;
}

}  // namespace sterling::model
