#include "lab/inspect_kv.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "base/float_types.h"
#include "lab/inspect_dimensions.h"

namespace sterling::lab {
namespace {

namespace json = boost::json;

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  return result;
}

std::optional<std::string> wish_from_text(std::string_view text) {
  const std::string name = lower(text);
  if (name.empty() || name == "none" || name == "auto" || name == "null") return std::nullopt;
  if (name == "fp8" || name == "float8" || name == "fp8_e4m3" || name == "float8_e4m3fn") return "fp8_e4m3";
  if (name == "fp4" || name == "nvfp4") return "nvfp4";
  return name;
}

std::optional<std::string> wish_from_scheme(const json::object& scheme) {
  const json::value* bits = scheme.if_contains("num_bits");
  const json::value* type = scheme.if_contains("type");
  if (bits == nullptr || !bits->is_int64()) return "unknown";
  const bool floating = type == nullptr || !type->is_string() || type->get_string() == "float";
  if (floating && bits->get_int64() == 8) return "fp8_e4m3";
  if (floating && bits->get_int64() == 4) return "nvfp4";
  if (floating && bits->get_int64() == 16) return "bf16";
  return fmt::format("{}{}", floating ? "float" : "int", bits->get_int64());
}

// Values of a small float tensor; empty when it is of another type or too large to be a scale.
std::vector<float> scale_values(const TensorView& tensor) {
  constexpr std::size_t kMostBytes = 1 << 20;
  std::vector<float> values;
  if (tensor.data.size() > kMostBytes) return values;
  const auto read = [&]<typename Stored>(Stored, auto convert) {
    for (std::size_t at = 0; at + sizeof(Stored) <= tensor.data.size(); at += sizeof(Stored)) {
      Stored stored;
      std::memcpy(&stored, tensor.data.data() + at, sizeof stored);
      values.push_back(convert(stored));
    }
  };
  switch (tensor.dtype) {
    case DType::kF32: read(float{}, [](float x) { return x; }); break;
    case DType::kBF16: read(bf16{}, [](bf16 x) { return to_float(x); }); break;
    case DType::kF16: read(fp16{}, [](fp16 x) { return to_float(x); }); break;
    case DType::kF64: read(double{}, [](double x) { return static_cast<float>(x); }); break;
    default: break;
  }
  return values;
}

// How many of a layer's two scales a tensor of this name is: 0 for other tensors.
std::int64_t scales_in_name(std::string_view name) {
  if (name.starts_with("mtp.")) return 0;
  constexpr std::array<std::string_view, 4> kSingle{".k_scale", ".v_scale", ".k_proj.output_scale",
                                                    ".v_proj.output_scale"};
  for (const std::string_view suffix : kSingle) {
    if (name.ends_with(suffix)) return 1;
  }
  return name.ends_with(".kv_scale") ? 2 : 0;  // the deprecated form: one value for both
}

void read_sources(const formats::Checkpoint& checkpoint, KvCacheFacts& facts) {
  const auto value_of = [](const json::object& section, std::string_view key) {
    const json::value* value = section.if_contains(key);
    return value == nullptr ? json::value(nullptr) : *value;
  };
  if (const json::object* section = quantization_section(checkpoint.config())) {
    const bool by_algo = !section->contains("kv_cache_scheme") && section->contains("kv_cache_quant_algo");
    const std::string_view key = by_algo ? "kv_cache_quant_algo" : "kv_cache_scheme";
    facts.sources.push_back({"config.json", fmt::format("quantization_config.{}", key), value_of(*section, key)});
  }
  if (const json::object* section = quantization_section_of_hf_quant(checkpoint.hf_quant_config())) {
    facts.sources.push_back(
        {"hf_quant_config.json", "quantization.kv_cache_quant_algo", value_of(*section, "kv_cache_quant_algo")});
  }
  std::optional<std::optional<std::string>> first;
  for (const KvWishSource& source : facts.sources) {
    const std::optional<std::string> wish = canonical_kv_wish(source.value);
    if (first && *first != wish) facts.sources_disagree = true;
    if (!first) first = wish;
    if (!facts.wish) facts.wish = wish;
  }
}

void read_scales(const formats::Checkpoint& checkpoint, KvInspection& result) {
  KvScales& scales = result.facts.scales;
  if (!checkpoint.weights_present()) return;
  scales.found = 0;
  bool all_one = true;
  for (const TensorView& tensor : checkpoint.tensors()) {
    const std::int64_t count = scales_in_name(tensor.name);
    if (count == 0) continue;
    *scales.found += count;
    for (const float value : scale_values(tensor)) {
      if (value != 1.0F) all_one = false;
      if (std::isfinite(value)) {
        scales.min = std::min<double>(scales.min.value_or(value), value);
        scales.max = std::max<double>(scales.max.value_or(value), value);
      }
      if (std::isfinite(value) && value > 0.0F) continue;
      result.lint.push_back(
          {LintSeverity::kError, "kv_scale_invalid", tensor.name,
           fmt::format("{}: tensor {} holds {}; a K/V scale is finite and above 0", tensor.file, tensor.name, value)});
      break;
    }
  }
  if (*scales.found > 0) scales.all_one = all_one;
}

void judge(const formats::Checkpoint& checkpoint, const ModelDimensions& dimensions, KvInspection& result) {
  KvCacheFacts& facts = result.facts;
  if (facts.sources_disagree) {
    std::string what;
    for (const KvWishSource& source : facts.sources) {
      what +=
          fmt::format("{}{} {} = {}", what.empty() ? "" : ", ", source.file, source.key, json::serialize(source.value));
    }
    result.lint.push_back(
        {LintSeverity::kWarning, "kv_wish_sources_disagree", "hf_quant_config.json",
         fmt::format("the checkpoint's files disagree on the KV cache type: {}; engines differ in which "
                     "one they obey",
                     what)});
  }
  const bool quantised = facts.wish && *facts.wish != "bf16" && *facts.wish != "fp16" && *facts.wish != "fp32";
  if (!quantised) return;
  facts.scales.expected = 2 * dimensions.full_attention_layers.value_or(0);
  if (!checkpoint.weights_present()) return;
  if (*facts.scales.found == 0) {
    result.lint.push_back(
        {LintSeverity::kWarning, "kv_wish_without_scales", facts.sources.front().file,
         fmt::format("the checkpoint wishes an {} KV cache and holds no K/V scales; an engine that obeys uses "
                     "1.0",
                     *facts.wish)});
  } else if (facts.scales.expected > 0 && *facts.scales.found < facts.scales.expected) {
    result.lint.push_back({LintSeverity::kWarning, "kv_scales_incomplete", "",
                           fmt::format("{} of {} K/V scales are there; an engine that obeys uses 1.0 for the others",
                                       *facts.scales.found, facts.scales.expected)});
  }
  if (facts.scales.all_one == true) {
    result.lint.push_back({LintSeverity::kWarning, "kv_scales_all_one", "",
                           "every K/V scale is 1.0: either a cast recipe, or nobody calibrated them"});
  }
}

}  // namespace

std::optional<std::string> canonical_kv_wish(const json::value& value) {
  if (value.is_string()) return wish_from_text(value.get_string());
  if (value.is_object()) return wish_from_scheme(value.get_object());
  return value.is_null() ? std::nullopt : std::optional<std::string>("unknown");
}

const json::object* quantization_section(const json::object& config) {
  for (const json::object* object : {&config, &text_config(config)}) {
    for (const std::string_view key : {"quantization_config", "compression_config"}) {
      const json::value* section = object->if_contains(key);
      if (section != nullptr && section->is_object()) return &section->get_object();
    }
  }
  return nullptr;
}

const json::object* quantization_section_of_hf_quant(const json::object* hf_quant_config) {
  if (hf_quant_config == nullptr) return nullptr;
  const json::value* section = hf_quant_config->if_contains("quantization");
  return section != nullptr && section->is_object() ? &section->get_object() : hf_quant_config;
}

KvInspection inspect_kv(const formats::Checkpoint& checkpoint, const ModelDimensions& dimensions) {
  KvInspection result;
  read_sources(checkpoint, result.facts);
  read_scales(checkpoint, result);
  judge(checkpoint, dimensions, result);
  return result;
}

}  // namespace sterling::lab
