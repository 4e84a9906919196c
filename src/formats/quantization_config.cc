#include "formats/quantization_config.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

namespace sterling::formats {
namespace {

namespace json = boost::json;

std::string upper(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
  return result;
}

// The fields of one section; the first fault is kept.
struct Section {
  std::string file;
  std::string folder;  // as messages begin: "" or "…/"
  std::string path;
  const json::object* object = nullptr;
  std::optional<Error> error;

  void fail(std::string_view key, std::string_view expected, const json::value& value) {
    if (error) return;
    error = make_error(ErrorCode::kCorrupt,
                       fmt::format("{}{}: {}.{} is {}; accepted: {}", folder, file, path, key,
                                   json::serialize(value).substr(0, 80), expected),
                       fmt::format("{}:{}.{}", file, path, key));
  }
  const json::value* find(std::string_view key) const {
    const json::value* value = object == nullptr ? nullptr : object->if_contains(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  }
  std::string text(std::string_view key) {
    const json::value* value = find(key);
    if (value == nullptr) return {};
    if (value->is_string()) return std::string(value->get_string());
    fail(key, "a string", *value);
    return {};
  }
  std::vector<std::string> texts(std::string_view key) {
    std::vector<std::string> result;
    const json::value* value = find(key);
    if (value == nullptr) return result;
    if (!value->is_array()) {
      fail(key, "a list of strings", *value);
      return result;
    }
    for (const json::value& entry : value->get_array()) {
      if (!entry.is_string()) {
        fail(key, "a list of strings", *value);
        return {};
      }
      result.emplace_back(entry.get_string());
    }
    return result;
  }
  const json::object* object_of(std::string_view key) {
    const json::value* value = find(key);
    if (value == nullptr) return nullptr;
    if (value->is_object()) return &value->get_object();
    fail(key, "an object", *value);
    return nullptr;
  }
};

const json::object* object_in(const json::object& parent, std::string_view key) {
  const json::value* value = parent.if_contains(key);
  return value != nullptr && value->is_object() ? &value->get_object() : nullptr;
}

Expected<Section> own_section(const json::object& config, const std::string& folder) {
  const QuantizationSection found = find_quantization_section(config);
  Section section{"config.json", folder, std::string(found.key), nullptr, {}};
  if (found.value == nullptr) return section;
  if (!found.value->is_object()) {
    return make_error(ErrorCode::kCorrupt,
                      fmt::format("{}config.json: {} is {}; accepted: an object", folder, found.key,
                                  json::serialize(*found.value).substr(0, 80)),
                      fmt::format("config.json:{}", found.key));
  }
  section.object = &found.value->get_object();
  return section;
}

bool algorithm_is_known(std::string_view algorithm) {
  constexpr std::array<std::string_view, 10> kKnown{"FP8",
                                                    "FP8_PER_CHANNEL_PER_TOKEN",
                                                    "FP8_PB_WO",
                                                    "NVFP4",
                                                    "W4A16_NVFP4",
                                                    "W4A8_NVFP4_FP8",
                                                    "MXFP8",
                                                    "MXFP4",
                                                    "W4A8_MXFP4_FP8",
                                                    "MIXED_PRECISION"};
  return std::find(kKnown.begin(), kKnown.end(), upper(algorithm)) != kKnown.end();
}

bool method_is_known(std::string_view method) {
  constexpr std::array<std::string_view, 6> kKnown{"modelopt", "modelopt_fp4",       "fp8",
                                                   "mxfp4",    "compressed-tensors", "fbgemm_fp8"};
  return std::find(kKnown.begin(), kKnown.end(), method) != kKnown.end();
}

bool layout_is_known(std::string_view layout) {
  constexpr std::array<std::string_view, 8> kKnown{
      "dense",           "float-quantized",      "naive-quantized", "nvfp4-pack-quantized",
      "mixed-precision", "mxfp4-pack-quantized", "mxfp8-quantized", "mxfp8-pack-quantized"};
  return std::find(kKnown.begin(), kKnown.end(), layout) != kKnown.end();
}

// Bits of declared activations by the name of the algorithm, where no group says so.
std::optional<std::int64_t> activation_bits_of(std::string_view algorithm) {
  const std::string name = upper(algorithm);
  if (name == "NVFP4") return 4;
  if (name == "FP8" || name == "FP8_PER_CHANNEL_PER_TOKEN" || name == "MXFP8" || name == "W4A8_NVFP4_FP8" ||
      name == "W4A8_MXFP4_FP8")
    return 8;
  return std::nullopt;
}

void take_smaller(std::optional<std::int64_t>& bits, std::optional<std::int64_t> other) {
  if (other) bits = std::min(bits.value_or(*other), *other);
}

void refuse(QuantizationConfig& result, const Section& section, std::string_view key, std::string_view method) {
  if (!result.refusal)
    result.refusal = refuse_method(fmt::format("{}{}: {}.{}", section.folder, section.file, section.path, key), method);
}

// The algorithm that the numbers of a group's weights describe, under ModelOpt's names.
std::string algorithm_of_weights(const json::object& weights) {
  const auto number = [&](std::string_view key) {
    const json::value* value = weights.if_contains(key);
    return value != nullptr && value->is_int64() ? value->get_int64() : 0;
  };
  const json::value* named = weights.if_contains("strategy");
  const std::string_view strategy =
      named != nullptr && named->is_string() ? std::string_view(named->get_string()) : std::string_view();
  if (number("num_bits") == 4) return number("group_size") == 16 ? "NVFP4" : number("group_size") == 32 ? "MXFP4" : "";
  if (number("num_bits") != 8) return "";
  if (number("group_size") == 32) return "MXFP8";
  if (strategy == "channel") return "FP8_PER_CHANNEL_PER_TOKEN";
  if (strategy == "block") return "FP8_PB_WO";
  return strategy == "tensor" ? "FP8" : "FP8_ANY";
}

QuantizationGroup read_group(Section& group, const json::object& weights) {
  QuantizationGroup result;
  std::vector<std::string> names;
  const std::vector<std::string> targets = group.texts("targets");
  for (const std::string& target : targets) {
    // Classes are spelt as in Python, modules in lower case.
    const bool is_class = !target.empty() && target.front() >= 'A' && target.front() <= 'Z' &&
                          target.find_first_of(".*") == std::string::npos;
    if (target == "Linear") {
      result.linears = true;
    } else if (is_class) {
      result.other_classes = true;
    } else {
      names.push_back(target);
    }
  }
  if (targets.empty()) result.linears = true;
  result.targets = ModulePatterns(std::move(names));
  result.algorithm = algorithm_of_weights(weights);
  return result;
}

// config_groups of ModelOpt and compressed-tensors: integer weights are refused, input activations noted.
void read_groups(Section& section, QuantizationConfig& result) {
  const json::object* groups = section.object_of("config_groups");
  if (groups == nullptr) return;
  for (const auto& [name, value] : *groups) {
    const std::string path = fmt::format("config_groups.{}", std::string_view(name));
    if (!value.is_object()) return section.fail(path, "an object", value);
    Section group{section.file, section.folder, section.path + "." + path, &value.get_object(), {}};
    if (const json::object* weights = group.object_of("weights")) {
      const json::value* type = weights->if_contains("type");
      if (type != nullptr && type->is_string() && type->get_string() == "int") {
        const json::value* bits = weights->if_contains("num_bits");
        refuse(result, section, path + ".weights",
               fmt::format("INT{}", bits != nullptr && bits->is_int64() ? bits->get_int64() : 8));
      }
      result.groups.push_back(read_group(group, *weights));
      if (result.groups.back().algorithm == "NVFP4" && group.find("input_activations") == nullptr) {
        result.groups.back().algorithm = "W4A16_NVFP4";
      }
    }
    if (const json::object* inputs = group.object_of("input_activations")) {
      const json::value* bits = inputs->if_contains("num_bits");
      if (bits != nullptr && bits->is_int64() && bits->get_int64() > 0 && bits->get_int64() < 16) {
        take_smaller(result.activation_bits, bits->get_int64());
      }
    }
    if (const std::string layout = group.text("format"); !layout.empty() && !layout_is_known(layout)) {
      refuse(result, section, path + ".format", layout);
    }
    if (group.error && !section.error) section.error = group.error;
  }
}

void read_layers(Section& section, QuantizationConfig& result) {
  const json::object* layers = section.object_of("quantized_layers");
  if (layers == nullptr) return;
  result.mixed = true;
  for (const auto& [module, value] : *layers) {
    const json::value* algorithm = value.is_object() ? value.get_object().if_contains("quant_algo") : nullptr;
    if (algorithm == nullptr || !algorithm->is_string()) {
      return section.fail(fmt::format("quantized_layers.{}", std::string_view(module)), "{\"quant_algo\": …}", value);
    }
    const std::string name(algorithm->get_string());
    if (!algorithm_is_known(name))
      refuse(result, section, fmt::format("quantized_layers.{}", std::string_view(module)), name);
    take_smaller(result.activation_bits, activation_bits_of(name));
    result.layers.emplace(std::string(module), name);
  }
}

void read_block_size(const Section& section, QuantizationConfig& result) {
  const json::value* size = section.find("weight_block_size");
  if (size == nullptr || !size->is_array() || size->get_array().size() != 2) return;
  const auto extent = [size](std::size_t i) -> std::int64_t {
    const json::value& value = size->get_array()[i];
    return value.is_int64() && value.get_int64() >= 1 && value.get_int64() <= 65536 ? value.get_int64() : 0;
  };
  result.has_blocks = extent(0) > 0 && extent(1) > 0;
  if (extent(0) > 0) result.block_rows = extent(0);
  if (extent(1) > 0) result.block_cols = extent(1);
}

Status read_section(Section section, std::initializer_list<std::string_view> ignore_keys, QuantizationConfig& result) {
  if (section.object == nullptr) return {};
  const std::string method = section.text("quant_method");
  const std::string algorithm = section.text("quant_algo");
  const std::string layout = section.text("format");
  if (!method.empty() && !method_is_known(method)) refuse(result, section, "quant_method", method);
  if (!algorithm.empty() && !algorithm_is_known(algorithm)) refuse(result, section, "quant_algo", algorithm);
  if (method == "compressed-tensors" && !layout.empty() && !layout_is_known(layout))
    refuse(result, section, "format", layout);
  // Marks of a variant, whatever the algorithm calls itself: they change the arithmetic.
  const auto says = [&](std::string_view key) {
    const json::value* value = section.find(key);
    return value != nullptr && !(value->is_bool() && !value->get_bool()) &&
           !(value->is_int64() && value->get_int64() == 0);
  };
  if (says("pre_quant_scale")) refuse(result, section, "pre_quant_scale", "AWQ (scaled activations)");
  if (says("lora_rank")) refuse(result, section, "lora_rank", "SVD (a low-rank part beside the weights)");
  if (says("has_zero_point")) refuse(result, section, "has_zero_point", "asymmetric integers");
  read_groups(section, result);
  read_layers(section, result);
  read_block_size(section, result);
  const bool by_method = !method.empty() && method != "modelopt";  // modelopt alone may speak of K and V only
  if (!algorithm.empty() || by_method) {
    const bool first = !result.announced;
    result.announced = true;
    if (first) {
      result.file = section.file;
      result.method = !algorithm.empty() ? algorithm : layout.empty() ? method : method + " " + layout;
    }
    if (section.object->if_contains("config_groups") == nullptr && !result.mixed && !result.activation_bits) {
      result.activation_bits = activation_bits_of(algorithm);
      if (!result.activation_bits && !section.text("activation_scheme").empty()) result.activation_bits = 8;
    }
  }
  for (const std::string_view key : ignore_keys) {
    std::vector<std::string> patterns = section.texts(key);
    if (patterns.empty() || !result.ignored.all().empty()) continue;
    result.ignored = ModulePatterns(std::move(patterns));
    result.ignored_key = fmt::format("{}: {}.{}", section.file, section.path, key);
  }
  if (section.error) return *section.error;
  return {};
}

// The entry of quantized_layers for a module; a listed parent ("…mlp.experts") stands for all its children.
const std::string* layer_algorithm(const QuantizationConfig& config, std::string_view module) {
  for (std::size_t end = module.size(); end != std::string_view::npos && end > 0; end = module.rfind('.', end - 1)) {
    const auto found = config.layers.find(std::string(module.substr(0, end)));
    if (found != config.layers.end()) return &found->second;
  }
  return nullptr;
}

}  // namespace

bool QuantizationConfig::announces(std::string_view module) const {
  if (!announced) return false;
  if (mixed) return layer_algorithm(*this, module) != nullptr;
  if (ignored.matches(module)) return false;
  return groups.empty() || std::any_of(groups.begin(), groups.end(), [&](const QuantizationGroup& group) {
           return group.linears || group.targets.matches(module);
         });
}

std::string QuantizationConfig::algorithm_of(std::string_view module) const {
  if (const std::string* own = layer_algorithm(*this, module)) return *own;
  const QuantizationGroup* wide = nullptr;
  for (const QuantizationGroup& group : groups) {
    if (group.targets.matches(module)) return group.algorithm;
    if (group.linears || group.other_classes) wide = &group;
  }
  // ModelOpt's groups say no more than its algorithm does.
  const bool named = algorithm_is_known(method) && upper(method) != "MIXED_PRECISION";
  return wide != nullptr && !named ? wide->algorithm : method;
}

std::string_view QuantizationConfig::announced_format(std::string_view module) const {
  const std::string name = upper(algorithm_of(module));
  if (method == "fp8" && name == "FP8") return has_blocks ? "fp8_e4m3_block" : "fp8_e4m3";
  struct Row {
    std::string_view algorithm;
    std::string_view format;
  };
  constexpr std::array<Row, 13> kFormats{{{"FP8", "fp8_e4m3_tensor"},
                                          {"FP8_ANY", "fp8_e4m3"},
                                          {"FBGEMM_FP8", "fp8_e4m3_channel"},
                                          {"FP8_PER_CHANNEL_PER_TOKEN", "fp8_e4m3_channel"},
                                          {"FP8_PB_WO", "fp8_e4m3_block"},
                                          {"NVFP4", "nvfp4"},
                                          {"W4A16_NVFP4", "nvfp4"},
                                          {"W4A8_NVFP4_FP8", "nvfp4"},
                                          {"COMPRESSED-TENSORS NVFP4-PACK-QUANTIZED", "nvfp4"},
                                          {"MXFP8", "mxfp8"},
                                          {"MXFP4", "mxfp4"},
                                          {"W4A8_MXFP4_FP8", "mxfp4"},
                                          {"COMPRESSED-TENSORS FLOAT-QUANTIZED", "fp8_e4m3"}}};
  for (const Row& row : kFormats) {
    if (row.algorithm == name) return row.format;
  }
  return {};
}

QuantizationSection find_quantization_section(const json::object& config) {
  const json::object* text = object_in(config, "text_config");
  for (const json::object* parent : {&config, text}) {
    if (parent == nullptr) continue;
    for (const std::string_view key : {"quantization_config", "compression_config"}) {
      const json::value* value = parent->if_contains(key);
      if (value != nullptr && !value->is_null()) return {key, value};
    }
  }
  return {};
}

Expected<QuantizationConfig> read_quantization_config(const json::object& config, const json::object* hf_quant_config,
                                                      std::string_view folder) {
  QuantizationConfig result;
  const std::string prefix = folder.empty() ? std::string() : fmt::format("{}/", folder);
  if (hf_quant_config != nullptr) {
    Section section{"hf_quant_config.json", prefix, "quantization", object_in(*hf_quant_config, "quantization"), {}};
    if (section.object == nullptr) section = {"hf_quant_config.json", prefix, "(root)", hf_quant_config, {}};
    if (Status status = read_section(std::move(section), {"exclude_modules"}, result); !status) return status.error();
  }
  auto own = own_section(config, prefix);
  if (!own) return own.error();
  if (Status status = read_section(std::move(*own), {"ignore", "modules_to_not_convert"}, result); !status)
    return status.error();
  return result;
}

std::string_view foreign_method_of_tensor(std::string_view name) {
  struct Mark {
    std::string_view suffix;
    std::string_view method;
  };
  constexpr std::array<Mark, 7> kMarks{{{".qweight", "AWQ or GPTQ"},
                                        {".qzeros", "AWQ or GPTQ"},
                                        {".weight_zero_point", "asymmetric integer weights"},
                                        {".SCB", "bitsandbytes INT8"},
                                        {".quant_state.bitsandbytes__nf4", "bitsandbytes NF4"},
                                        {".pre_quant_scale", "AWQ-scaled activations (pre_quant_scale)"},
                                        {".svdquant_lora_a", "SVD"}}};
  for (const Mark& mark : kMarks) {
    if (name.ends_with(mark.suffix)) return mark.method;
  }
  return {};
}

std::string refuse_method(std::string_view place, std::string_view method) {
  return fmt::format(
      "{}: weights quantised as {} are not supported; accepted: BF16, FP16, FP32, FP8 E4M3 (per tensor, channel or "
      "block), NVFP4, MXFP4, MXFP8. "
      "The model's BF16 checkpoint works, also through `sterling quantize --to nvfp4` or `--to fp8`",
      place, method);
}

}  // namespace sterling::formats
