#include "lab/synth_plan.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "formats/object_reader.h"
#include "lab/synth_vision.h"
#include "model/architecture.h"
#include "model/model.h"

namespace sterling::lab {
namespace {

using Wanted = model::WeightBinder::Wanted;

// The object that holds the text model's fields.
boost::json::object& text_part(boost::json::object& config) {
  auto* text = config.if_contains("text_config");
  return text != nullptr && text->is_object() ? text->get_object() : config;
}

// Takes out what another checkpoint of the same model says of its weights.
void drop_quantisation(boost::json::object& config) {
  for (boost::json::object* object : {&config, &text_part(config)}) {
    object->erase("quantization_config");
    object->erase("compression_config");
  }
}

// The first `layers` layers: their number, their kinds, and lists of layer numbers.
Status cut_depth(boost::json::object& config, std::string_view file, std::int64_t layers) {
  boost::json::object& text = text_part(config);
  auto* count = text.if_contains("num_hidden_layers");
  if (count == nullptr || !count->is_int64() || layers > count->get_int64()) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("--layers {}: {} has {}; accepted: as many or fewer", layers, file,
                                  count == nullptr ? "no num_hidden_layers" : boost::json::serialize(*count)),
                      "--layers");
  }
  *count = layers;
  if (auto* kinds = text.if_contains("layer_types"); kinds != nullptr && kinds->is_array()) {
    auto& list = kinds->get_array();
    if (list.size() > static_cast<std::size_t>(layers)) list.resize(static_cast<std::size_t>(layers));
  }
  if (auto* dense = text.if_contains("mlp_only_layers"); dense != nullptr && dense->is_array()) {
    boost::json::array kept;
    for (const auto& layer : dense->get_array()) {
      if (layer.is_int64() && layer.get_int64() < layers) kept.push_back(layer);
    }
    *dense = std::move(kept);
  }
  return {};
}

std::string module_of(const std::string& name) {
  constexpr std::string_view kSuffix = ".weight";
  return name.ends_with(kSuffix) ? name.substr(0, name.size() - kSuffix.size()) : name;
}

// The MTP head's tensors: a full-attention layer of the model under another name, and what joins and ends it.
std::vector<Wanted> mtp_tensors(const ModelSpec& spec, const std::vector<Wanted>& model_tensors) {
  std::vector<Wanted> out;
  const auto full = std::find(spec.layers.begin(), spec.layers.end(), LayerKind::kFullAttention);
  if (spec.mtp_layers == 0 || full == spec.layers.end()) return out;
  const std::string from = fmt::format("{}layers.{}.", spec.tensor_prefix, full - spec.layers.begin());
  const std::int64_t hidden = spec.hidden_size;
  out.push_back({"mtp.fc.weight", {hidden, 2 * hidden}, Wanted::Kind::kMatrix});
  for (const char* norm : {"pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"}) {
    out.push_back({fmt::format("mtp.{}.weight", norm), {hidden}, Wanted::Kind::kVector});
  }
  for (std::int32_t layer = 0; layer < spec.mtp_layers; ++layer) {
    for (const Wanted& wanted : model_tensors) {
      if (!wanted.name.starts_with(from)) continue;
      Wanted copy = wanted;
      copy.name = fmt::format("mtp.layers.{}.{}", layer, wanted.name.substr(from.size()));
      out.push_back(std::move(copy));
    }
  }
  return out;
}

// Single experts to the 3-D tensors that published BF16 files of this family hold: gate rows, then up rows of each expert.
std::vector<Wanted> fuse_experts(const std::vector<Wanted>& tensors) {
  std::vector<Wanted> out;
  std::unordered_map<std::string, std::size_t> place;
  constexpr std::string_view kExperts = ".experts.";
  for (const Wanted& wanted : tensors) {
    const std::size_t at = wanted.name.find(kExperts);
    if (at == std::string::npos || wanted.shape.size() != 2) {
      out.push_back(wanted);
      continue;
    }
    const bool down = wanted.name.ends_with(".down_proj.weight");
    const std::string name = wanted.name.substr(0, at + kExperts.size()) + (down ? "down_proj" : "gate_up_proj");
    const auto [entry, fresh] = place.try_emplace(name, out.size());
    if (fresh) {
      out.push_back({name, {0, wanted.shape[0] * (down ? 1 : 2), wanted.shape[1]}, wanted.kind});
    }
    // Each expert counts once: by its down or its gate projection.
    if (down || wanted.name.ends_with(".gate_proj.weight")) ++out[entry->second].shape[0];
  }
  return out;
}

// Standard deviations that keep activations near 1 through the layers; gates and norms as trained models have them, roughly.
Distribution distribution_of(const Wanted& wanted, const ModelSpec& spec) {
  const std::string& name = wanted.name;
  const auto has = [&](std::string_view part) { return name.find(part) != std::string::npos; };
  const auto fan_in = static_cast<double>(wanted.shape.back());
  if (name.ends_with("A_log")) return {std::log(0.5), std::log(8.0), true};  // decay rates 1/16 to 4
  if (name.ends_with("dt_bias")) return {-2.0, 2.0, true};
  if (name.ends_with(".bias")) return {0.0, 0.02};
  if (has("embed_tokens") || has("pos_embed")) return {0.0, 0.02};
  if (wanted.shape.size() == 1) {
    const bool around_zero = spec.zero_centered_norm && !has("linear_attn.norm") && !has("visual.");
    return {around_zero ? 0.0 : 1.0, 0.05};
  }
  if (name.ends_with("lm_head.weight") || module_of(name).ends_with(".gate")) return {0.0, 2.0 / std::sqrt(fan_in)};
  if (has("patch_embed")) return {0.0, 0.02};
  return {0.0, 1.0 / std::sqrt(fan_in)};
}

// Published Qwen3.5 files hold these in FP32 and everything else in BF16.
DType stored_type(const Wanted& wanted, const ModelSpec& spec) {
  const bool qwen35 = spec.model_type.starts_with("qwen3_5");
  return qwen35 && (wanted.name.ends_with("A_log") || wanted.name.ends_with("linear_attn.norm.weight")) ? DType::kF32
                                                                                                        : DType::kBF16;
}

// Largest activation that input scales stand for: the middle of what calibrated files have.
constexpr double kActivationLargest = 8.0;

class Planner {
 public:
  Planner(const ModelSpec& spec, const SynthRequest& request) : spec_(spec), request_(request) {
    if (request.weights == WeightTarget::kNvfp4) unit_ = nvfp4_tables().unit;
    if (request.weights == WeightTarget::kFp8 || request.weights == WeightTarget::kFp8Block) unit_ = fp8_tables().unit;
    metadata_.target = request.weights;
    metadata_.activations = request.weights != WeightTarget::kFp8Block;
    metadata_.version = request.version;
  }

  void add_all(const std::vector<Wanted>& wanted) {
    std::vector<MatrixModule> modules;
    for (const Wanted& w : wanted) {
      if (w.shape.size() == 2 && w.kind == Wanted::Kind::kMatrix)
        modules.push_back({module_of(w.name), w.shape[0], w.shape[1]});
    }
    const QuantRules rules(request_.weights, modules, {});
    std::set<std::string> seen;
    for (const Wanted& w : wanted) {
      // A matrix whose rows are bound in several selections is listed several times.
      if (!seen.insert(w.name).second) continue;
      const bool matrix = w.kind == Wanted::Kind::kMatrix && w.shape.size() == 2;
      const MatrixModule module{module_of(w.name), matrix ? w.shape[0] : 0, matrix ? w.shape[1] : 0};
      if (matrix && rules.quantises(module)) {
        add_quantised(module, distribution_of(w, spec_));
        continue;
      }
      if (w.shape.size() > 1 && w.name.ends_with(".weight")) metadata_.plain.push_back(module.name);
      SynthTensor plain;
      plain.tensor = {w.name, stored_type(w, spec_), w.shape};
      plain.distribution = distribution_of(w, spec_);
      tensors_.push_back(std::move(plain));
    }
  }

  std::vector<SynthTensor> take_tensors() { return std::move(tensors_); }
  const QuantMetadata& metadata() const { return metadata_; }

 private:
  void add_quantised(const MatrixModule& module, const Distribution& distribution) {
    using Content = SynthTensor::Content;
    metadata_.quantised.push_back(module.name);
    const double scale = unit_ * distribution.deviation;
    const double largest_code = request_.weights == WeightTarget::kNvfp4 ? 6.0 * 448.0 : 448.0;
    for (auto& part : quantised_parts(module, request_.weights, metadata_.activations)) {
      SynthTensor tensor;
      const bool codes = part.name.ends_with(".weight");
      const bool nvfp4 = request_.weights == WeightTarget::kNvfp4;
      if (codes) {
        tensor.content = nvfp4 ? Content::kNvfp4Codes : Content::kFp8Codes;
      } else if (part.dtype == DType::kF32) {
        tensor.content = Content::kConstant;
        tensor.scale = part.name.ends_with(".input_scale") ? kActivationLargest / largest_code : scale;
      } else {
        tensor.content = nvfp4 ? Content::kNvfp4Scales : Content::kFp8BlockScales;
        tensor.scale = scale;
      }
      tensor.tensor = std::move(part);
      tensors_.push_back(std::move(tensor));
    }
  }

  const ModelSpec& spec_;
  const SynthRequest& request_;
  double unit_ = 1.0;
  QuantMetadata metadata_;
  std::vector<SynthTensor> tensors_;
};

}  // namespace

Expected<SynthPlan> plan_synth(boost::json::object config, std::string_view config_file, const SynthRequest& request) {
  drop_quantisation(config);
  if (auto* count = text_part(config).if_contains("mtp_num_hidden_layers"); count != nullptr && !request.mtp)
    *count = 0;
  const auto whole = model::read_model_spec(config, config_file);
  if (!whole) return whole.error();
  // The MTP head is like a full-attention layer, which a cut model may not have.
  auto mtp_source = whole->spec.mtp_layers > 0 ? model::list_tensors(config, config_file)
                                               : Expected<std::vector<Wanted>>(std::vector<Wanted>{});
  if (!mtp_source) return mtp_source.error();
  if (request.layers) {
    if (Status status = cut_depth(config, config_file, *request.layers); !status) return status.error();
  }
  const auto cut = model::read_model_spec(config, config_file);
  if (!cut) return cut.error();
  auto wanted = model::list_tensors(config, config_file);
  if (!wanted) return wanted.error();
  std::vector<Wanted> tensors = std::move(*wanted);
  for (Wanted& w : mtp_tensors(whole->spec, *mtp_source)) tensors.push_back(std::move(w));
  const bool fused =
      request.weights == WeightTarget::kBf16 && cut->spec.architecture == "Qwen3_5MoeForConditionalGeneration";
  if (fused) tensors = fuse_experts(tensors);
  if (request.vision) {
    auto vision = vision_tensors(config, config_file);
    if (!vision) return vision.error();
    for (Wanted& w : *vision) tensors.push_back(std::move(w));
  }

  Planner planner(cut->spec, request);
  planner.add_all(tensors);
  SynthPlan plan;
  plan.tensors = planner.take_tensors();
  plan.layers = cut->spec.layer_count();
  plan.quantised_modules = static_cast<std::int64_t>(planner.metadata().quantised.size());
  if (request.weights != WeightTarget::kBf16) {
    if (plan.quantised_modules == 0) {
      return make_error(ErrorCode::kInvalidArgument,
                        fmt::format("--weights {}: none of the model's matrices can be stored so",
                                    weight_target_name(request.weights)),
                        "--weights");
    }
    config["quantization_config"] = quantization_config(planner.metadata());
    plan.hf_quant_config = hf_quant_config(planner.metadata());
  }
  plan.config = std::move(config);
  return plan;
}

}  // namespace sterling::lab
