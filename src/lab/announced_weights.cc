#include "lab/announced_weights.h"

#include <algorithm>
#include <string>
#include <utility>

#include "formats/quantization_config.h"
#include "lab/announced_families.h"
#include "lab/inspect_dimensions.h"
#include "lab/quant_layout.h"
#include "model/model.h"

namespace sterling::lab {
namespace {

namespace json = boost::json;
using Wanted = model::WeightBinder::Wanted;

enum class Form { kPlain, kFp8Tensor, kFp8Block, kNvfp4, kMxfp4, kUnknown };

std::string upper(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
  return result;
}

// The type that plain tensors have, `unnamed` where the configuration has no word on it; empty when it is none of the usual ones.
std::optional<DType> plain_type(const json::object& config, std::optional<DType> unnamed) {
  for (const json::object* object : {&config, &text_config(config)}) {
    for (const char* key : {"dtype", "torch_dtype"}) {
      const json::value* value = object->if_contains(key);
      if (value == nullptr || !value->is_string()) continue;
      if (value->get_string() == "bfloat16") return DType::kBF16;
      if (value->get_string() == "float16") return DType::kF16;
      if (value->get_string() == "float32") return DType::kF32;
      return std::nullopt;
    }
  }
  return unnamed;
}

// Qwen3.5's own files keep these two in FP32 (the published sizes are right to the byte with them); Qwen3.6's, whose configurations are the first with a
// language_model_only, keep them in BF16.
bool is_fp32_in_qwen35(const json::object& config, std::string_view name) {
  return (name.ends_with(".linear_attn.A_log") || name.ends_with(".linear_attn.norm.weight")) &&
         !config.contains("language_model_only");
}

class Announcer {
 public:
  Announcer(const json::object& config, const formats::QuantizationConfig& quantisation, DType plain,
            const FamilyLayout& layout)
      : config_(config), quantisation_(quantisation), layout_(layout), plain_(plain) {}

  // False: the metadata does not say enough about this one.
  bool add(const Wanted& wanted, std::vector<TensorView>& out) const {
    constexpr std::string_view kSuffix = ".weight";
    std::string module = wanted.name;
    if (module.ends_with(kSuffix)) module.resize(module.size() - kSuffix.size());
    const Form form = wanted.kind == Wanted::Kind::kMatrix ? form_of(module) : Form::kPlain;
    if (form == Form::kPlain) {
      const bool fp32 = is_fp32_in_qwen35(config_, wanted.name) ||
                        (!layout_.fp32_suffix.empty() && wanted.name.ends_with(layout_.fp32_suffix));
      out.push_back({wanted.name, fp32 ? DType::kF32 : plain_, wanted.shape, {}, {}});
      return true;
    }
    if (form == Form::kMxfp4) return add_mxfp4(wanted, out);
    if (form == Form::kUnknown || wanted.shape.size() != 2) return false;
    if (form == Form::kNvfp4 && wanted.shape[1] % 16 != 0) return false;
    const WeightTarget target = form == Form::kNvfp4      ? WeightTarget::kNvfp4
                                : form == Form::kFp8Block ? WeightTarget::kFp8Block
                                                          : WeightTarget::kFp8;
    const bool activations = form != Form::kFp8Block && !is_weight_only(module);
    for (const formats::PlannedTensor& part :
         quantised_parts({module, wanted.shape[0], wanted.shape[1]}, target, activations)) {
      const bool block_scales = form == Form::kFp8Block && part.dtype != DType::kF8E4M3;
      out.push_back({part.name, block_scales ? layout_.block_scales : part.dtype, part.shape, {}, {}});
    }
    return true;
  }

 private:
  // gpt-oss: experts fused in one tensor, 32 elements in 16 bytes of …_blocks and one of …_scales.
  static bool add_mxfp4(const Wanted& wanted, std::vector<TensorView>& out) {
    constexpr std::int64_t kGroup = 32;
    if (wanted.shape.size() != 3 || wanted.shape[2] % kGroup != 0) return false;
    std::vector<std::int64_t> scales = wanted.shape;
    scales[2] /= kGroup;
    std::vector<std::int64_t> blocks = scales;
    blocks.push_back(kGroup / 2);
    out.push_back({wanted.name + "_blocks", DType::kU8, std::move(blocks), {}, {}});
    out.push_back({wanted.name + "_scales", DType::kU8, std::move(scales), {}, {}});
    return true;
  }
  bool is_weight_only(std::string_view module) const {
    return upper(quantisation_.algorithm_of(module)) == "W4A16_NVFP4";
  }
  Form form_of(std::string_view module) const {
    if (!quantisation_.announces(module)) return Form::kPlain;
    // Left alone by quantisers whether or not their lists say so, unless the module itself is listed.
    if (!quantisation_.mixed && always_plain(module)) return Form::kPlain;
    const std::string_view format = quantisation_.announced_format(module);
    // Hugging Face's own layout says which blocks; per channel and MX have no published checkpoint to hold a count against.
    if (format == "fp8_e4m3_block") return usual_blocks() ? Form::kFp8Block : Form::kUnknown;
    return format == "nvfp4"             ? Form::kNvfp4
           : format == "mxfp4"           ? Form::kMxfp4
           : format == "fp8_e4m3_tensor" ? Form::kFp8Tensor
                                         : Form::kUnknown;
  }
  bool usual_blocks() const {
    return quantisation_.has_blocks && quantisation_.block_rows == kFp8BlockSize &&
           quantisation_.block_cols == kFp8BlockSize;
  }

  const json::object& config_;
  const formats::QuantizationConfig& quantisation_;
  const FamilyLayout& layout_;
  DType plain_;
};

}  // namespace

std::optional<AnnouncedWeights> announced_weights(const json::object& config, const json::object* hf_quant_config,
                                                  const ModelDimensions& dimensions,
                                                  const ParameterCounts& parameters) {
  const auto quantisation = formats::read_quantization_config(config, hf_quant_config);
  if (!quantisation || quantisation->refusal || !parameters.mtp || !parameters.vision) return std::nullopt;
  AnnouncedWeights result;
  FamilyLayout layout;
  if (auto family = list_family(config, dimensions)) {
    layout = std::move(*family);
    result.text_only = false;
    result.mtp_note = layout.mtp_note;
  } else {
    auto wanted = model::list_tensors(config, "config.json");
    // No family lists its MTP head: whole files of quantised ones are not known here.
    if (!wanted || (*parameters.mtp > 0 && quantisation->announces("mtp.layers.0.mlp.up_proj"))) return std::nullopt;
    layout.tensors = std::move(*wanted);
  }
  const auto plain = plain_type(config, layout.plain);
  if (!plain) return std::nullopt;
  const Announcer announcer(config, *quantisation, *plain, layout);
  for (const Wanted& one : layout.tensors) {
    if (!announcer.add(one, result.tensors)) return std::nullopt;
  }
  // Fused matrices are bound in parts, under one name.
  const auto by_name = [](const TensorView& a, const TensorView& b) { return a.name < b.name; };
  const auto same_name = [](const TensorView& a, const TensorView& b) { return a.name == b.name; };
  std::stable_sort(result.tensors.begin(), result.tensors.end(), by_name);
  result.tensors.erase(std::unique(result.tensors.begin(), result.tensors.end(), same_name), result.tensors.end());
  const std::int64_t bytes = *plain == DType::kF32 ? 4 : 2;
  result.plain_format = *plain == DType::kBF16 ? "bf16" : *plain == DType::kF16 ? "fp16" : "fp32";
  result.mtp_bytes = *parameters.mtp * bytes;
  result.vision_bytes = *parameters.vision * bytes;
  return result;
}

}  // namespace sterling::lab
