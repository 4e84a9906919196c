#include "lab/quant_layout.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "quant/encode.h"

namespace sterling::lab {
namespace {

constexpr std::array<std::pair<WeightTarget, std::string_view>, 4> kTargets = {{
    {WeightTarget::kBf16, "bf16"},
    {WeightTarget::kFp8, "fp8"},
    {WeightTarget::kFp8Block, "fp8-block"},
    {WeightTarget::kNvfp4, "nvfp4"},
}};

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// "…layers.3.self_attn" of "…layers.3.self_attn.q_proj" for the parts of a layer that lists name as a whole; empty for others.
std::string_view part_of_layer(std::string_view module) {
  for (const std::string_view part : {".self_attn.", ".linear_attn.", ".mlp.shared_expert."}) {
    const std::size_t at = module.find(part);
    if (at != std::string_view::npos) return module.substr(0, at + part.size() - 1);
  }
  return {};
}

boost::json::object number_format(int bits) {
  boost::json::object format{{"dynamic", false}, {"num_bits", bits}, {"type", "float"}};
  if (bits == 4) format["group_size"] = quant::kNvfp4Group;
  return format;
}

std::string_view algorithm(const QuantMetadata& metadata) {
  if (metadata.target == WeightTarget::kFp8) return "FP8";
  return metadata.activations ? "NVFP4" : "W4A16_NVFP4";
}

void write_json(const boost::json::value& value, std::size_t depth, std::string& out) {
  const auto line = [&](std::size_t level) { out += "\n" + std::string(2 * level, ' '); };
  const char* separator = "";
  if (value.is_object() && !value.get_object().empty()) {
    out += "{";
    for (const auto& [key, member] : value.get_object()) {
      out += std::exchange(separator, ",");
      line(depth + 1);
      out += boost::json::serialize(boost::json::value(key)) + ": ";
      write_json(member, depth + 1, out);
    }
    line(depth);
    out += "}";
  } else if (value.is_array() && !value.get_array().empty()) {
    out += "[";
    for (const boost::json::value& member : value.get_array()) {
      out += std::exchange(separator, ",");
      line(depth + 1);
      write_json(member, depth + 1, out);
    }
    line(depth);
    out += "]";
  } else {
    out += boost::json::serialize(value);
  }
}

}  // namespace

std::string_view weight_target_name(WeightTarget target) {
  for (const auto& [known, name] : kTargets) {
    if (known == target) return name;
  }
  return "unknown";
}

Expected<WeightTarget> parse_weight_target(std::string_view name) {
  for (const auto& [known, text] : kTargets) {
    if (text == name) return known;
  }
  return make_error(ErrorCode::kInvalidArgument,
                    fmt::format("\"{}\" is no weight format; accepted: bf16, fp8, fp8-block, nvfp4", name));
}

bool always_plain(std::string_view module) {
  if (module.starts_with("mtp.") || contains(module, "visual.") || contains(module, "vision_")) return true;
  constexpr std::string_view kLast[] = {"lm_head",   "embed_tokens", "gate",       "router", "shared_expert_gate",
                                        "in_proj_a", "in_proj_b",    "in_proj_ba", "conv1d"};
  const std::size_t dot = module.rfind('.');
  const std::string_view last = dot == std::string_view::npos ? module : module.substr(dot + 1);
  return std::find(std::begin(kLast), std::end(kLast), last) != std::end(kLast);
}

bool is_routed_expert(std::string_view module) {
  return contains(module, ".experts.");
}

QuantRules::QuantRules(WeightTarget target, std::span<const MatrixModule> modules, std::vector<std::string> excludes)
    : target_(target), excludes_(std::move(excludes)) {
  const auto any = [&](const auto& is) { return std::any_of(modules.begin(), modules.end(), is); };
  const bool experts = any([](const MatrixModule& m) { return is_routed_expert(m.name); });
  const bool hybrid = any([](const MatrixModule& m) { return contains(m.name, ".linear_attn."); });
  experts_only_ = target == WeightTarget::kNvfp4 && experts && hybrid;
  for (const std::string& pattern : excludes_) {
    if (any([&](const MatrixModule& m) { return matches_pattern(pattern, m.name); })) continue;
    idle_ = pattern;
    break;
  }
}

bool QuantRules::quantises(const MatrixModule& module) const {
  if (target_ == WeightTarget::kBf16 || always_plain(module.name)) return false;
  if (experts_only_ && !is_routed_expert(module.name)) return false;
  // Blocks of scales lie within a row.
  if (target_ == WeightTarget::kNvfp4 && module.cols % quant::kNvfp4Group != 0) return false;
  return std::none_of(excludes_.begin(), excludes_.end(),
                      [&](const std::string& pattern) { return matches_pattern(pattern, module.name); });
}

std::string scale_group(const std::string& module) {
  constexpr std::pair<std::string_view, std::string_view> kShared[] = {{".q_proj", ".qkv"},
                                                                       {".k_proj", ".qkv"},
                                                                       {".v_proj", ".qkv"},
                                                                       {".gate_proj", ".gate_up"},
                                                                       {".up_proj", ".gate_up"},
                                                                       {".w1", ".w13"},
                                                                       {".w3", ".w13"},
                                                                       {".in_proj_qkv", ".in_proj_qkvz"},
                                                                       {".in_proj_z", ".in_proj_qkvz"}};
  for (const auto& [suffix, group] : kShared) {
    if (module.ends_with(suffix)) return module.substr(0, module.size() - suffix.size()) + std::string(group);
  }
  return module;
}

std::vector<formats::PlannedTensor> quantised_parts(const MatrixModule& module, WeightTarget target, bool activations) {
  const auto blocks = [](std::int64_t n) { return (n + kFp8BlockSize - 1) / kFp8BlockSize; };
  std::vector<formats::PlannedTensor> parts;
  if (target == WeightTarget::kNvfp4) {
    parts = {{module.name + ".weight", DType::kU8, {module.rows, module.cols / 2}},
             {module.name + ".weight_scale", DType::kF8E4M3, {module.rows, module.cols / quant::kNvfp4Group}},
             {module.name + ".weight_scale_2", DType::kF32, {}}};
  } else if (target == WeightTarget::kFp8) {
    parts = {{module.name + ".weight", DType::kF8E4M3, {module.rows, module.cols}},
             {module.name + ".weight_scale", DType::kF32, {}}};
  } else {
    return {{module.name + ".weight", DType::kF8E4M3, {module.rows, module.cols}},
            {module.name + ".weight_scale_inv", DType::kBF16, {blocks(module.rows), blocks(module.cols)}}};
  }
  if (activations) parts.push_back({module.name + ".input_scale", DType::kF32, {}});
  return parts;
}

std::vector<std::string> excluded_modules(const QuantMetadata& metadata) {
  if (metadata.target == WeightTarget::kFp8Block) {
    std::vector<std::string> names = metadata.plain;
    std::sort(names.begin(), names.end());
    return names;
  }
  std::set<std::string_view> touched;  // parts of layers with a quantised matrix in them
  for (const std::string& module : metadata.quantised) touched.insert(part_of_layer(module));
  std::set<std::string> names;
  for (const std::string& module : metadata.plain) {
    const std::string_view part = part_of_layer(module);
    const std::size_t visual = module.find("visual.");
    if (module.ends_with("embed_tokens")) continue;  // no Linear: nothing would quantise it
    if (module.starts_with("mtp.")) {
      names.insert("mtp*");
    } else if (visual != std::string::npos) {
      names.insert(module.substr(0, visual) + "visual*");
    } else if (!part.empty() && !touched.contains(part)) {
      names.insert(std::string(part) + "*");
    } else {
      names.insert(module);
    }
  }
  return {names.begin(), names.end()};
}

boost::json::object quantization_config(const QuantMetadata& metadata) {
  boost::json::array excluded;
  for (const std::string& name : excluded_modules(metadata)) excluded.emplace_back(name);
  if (metadata.target == WeightTarget::kFp8Block) {
    return {{"activation_scheme", "dynamic"},
            {"fmt", "e4m3"},
            {"modules_to_not_convert", std::move(excluded)},
            {"quant_method", "fp8"},
            {"weight_block_size", boost::json::array{kFp8BlockSize, kFp8BlockSize}}};
  }
  const int bits = metadata.target == WeightTarget::kFp8 ? 8 : 4;
  boost::json::object group;
  if (metadata.activations) group["input_activations"] = number_format(bits);
  group["weights"] = number_format(bits);
  group["targets"] = boost::json::array{"Linear"};
  boost::json::object config;
  config["config_groups"] = boost::json::object{{"group_0", std::move(group)}};
  config["ignore"] = std::move(excluded);
  config["quant_algo"] = algorithm(metadata);
  config["producer"] = {{"name", "sterling"}, {"version", metadata.version}};
  config["quant_method"] = "modelopt";
  return config;
}

boost::json::object hf_quant_config(const QuantMetadata& metadata) {
  if (metadata.target == WeightTarget::kFp8Block) return {};
  boost::json::array excluded;
  for (const std::string& name : excluded_modules(metadata)) excluded.emplace_back(name);
  boost::json::object quantization;
  quantization["quant_algo"] = algorithm(metadata);
  quantization["kv_cache_quant_algo"] = nullptr;
  if (metadata.target == WeightTarget::kNvfp4) quantization["group_size"] = quant::kNvfp4Group;
  quantization["exclude_modules"] = std::move(excluded);
  boost::json::object document;
  document["producer"] = {{"name", "sterling"}, {"version", metadata.version}};
  document["quantization"] = std::move(quantization);
  return document;
}

bool matches_pattern(std::string_view pattern, std::string_view text) {
  std::size_t p = 0;
  std::size_t t = 0;
  std::size_t star = std::string_view::npos;
  std::size_t resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || (pattern[p] == text[t] && pattern[p] != '*'))) {
      ++p;
      ++t;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (star != std::string_view::npos) {
      // The last star takes one character more.
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::string pretty_json(const boost::json::value& value) {
  std::string text;
  write_json(value, 0, text);
  return text + "\n";
}

}  // namespace sterling::lab
