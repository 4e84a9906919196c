#include "cli/audit_choices.h"

#include <algorithm>

#include <fmt/format.h>

#include "cli/precision_subject.h"

namespace sterling::cli {
namespace {

using plan::KvType;
using quant::ActivationFormat;
using quant::WeightFormat;

bool is_fp8(WeightFormat format) {
  return format == WeightFormat::kFp8Tensor || format == WeightFormat::kFp8Channel ||
         format == WeightFormat::kFp8Block || format == WeightFormat::kMxfp8;
}

// Codes of the width that the format multiplies with.
bool pairs(ActivationFormat activations, WeightFormat weights) {
  return activations == ActivationFormat::kNvfp4 ? weights == WeightFormat::kNvfp4 : is_fp8(weights);
}

std::string_view engine_name(ActivationFormat format) {
  return format == ActivationFormat::kNvfp4 ? "W4A4" : "W8A8";
}

class Lister {
 public:
  Lister(const formats::Checkpoint& checkpoint, const model::CheckResult& checked, const ChoiceWishes& wishes)
      : checkpoint_(checkpoint), checked_(checked), wishes_(wishes) {}

  Expected<ChoiceList> run() {
    if (checked_.spec.count(LayerKind::kFullAttention) > 0) {
      if (Status status = add_kv(); !status) return status.error();
    } else {
      list_.notes.emplace_back("the model has no full-attention layer, so nothing is stored as K and V");
    }
    add_compute();
    add_activations();
    add_weights();
    if (!wishes_.only.empty()) {
      if (Status status = keep_named(); !status) return status.error();
    }
    return std::move(list_);
  }

 private:
  void kv(std::string name, std::string what, KvType k, KvType v, plan::KvScales scales = {}) {
    ChoicePlan plan;
    plan.choice = {std::move(name), "kv", std::move(what)};
    plan.kv = {k, v};
    plan.scales = std::move(scales);
    list_.choices.push_back(std::move(plan));
  }

  Status add_kv() {
    kv("kv bf16", "K and V stored in BF16.", KvType::kBf16, KvType::kBf16);
    kv("kv fp8_e4m3 at 1.0", "K and V stored in E4M3 with scales of 1.0: what an engine does that finds no scales.",
       KvType::kFp8E4m3, KvType::kFp8E4m3);
    auto found = find_scales(checkpoint_, checked_.spec, wishes_.kv_scales_file);
    if (!found) {
      if (wishes_.kv_scales_file) return found.error();
      list_.notes.push_back("K/V scales of the checkpoint can't be used: " + found.error().message);
    } else if (found->expected > 0 && found->missing.empty()) {
      kv("kv fp8_e4m3 scaled", fmt::format("K and V stored in E4M3 with scales from {}.", found->source),
         KvType::kFp8E4m3, KvType::kFp8E4m3, found->scales);
    } else if (wishes_.kv_scales_file) {
      return make_error(
          ErrorCode::kInvalidArgument,
          fmt::format("--kv-scales {}: has no scale for {}", *wishes_.kv_scales_file, found->missing.front()),
          "--kv-scales");
    } else {
      list_.notes.emplace_back("no K/V scales in the checkpoint and no --kv-scales FILE: scaled FP8 isn't measured");
    }
    kv("kv fp8_e5m2 at 1.0", "K and V stored in E5M2 with scales of 1.0.", KvType::kFp8E5m2, KvType::kFp8E5m2);
    kv("kv fp8_e4m3_token", "K and V stored in E4M3 with a scale per token and head.", KvType::kFp8E4m3Token,
       KvType::kFp8E4m3Token);
    kv("k fp8_e4m3 at 1.0", "K alone stored in E4M3 with scales of 1.0.", KvType::kFp8E4m3, KvType::kFp32);
    kv("v fp8_e4m3 at 1.0", "V alone stored in E4M3 with scales of 1.0.", KvType::kFp32, KvType::kFp8E4m3);
    return {};
  }

  void add_compute() {
    ChoicePlan plan;
    plan.choice = {"compute bf16", "compute", "Inputs of products rounded to BF16, sums in FP32."};
    plan.compute = backend::Compute::kBf16;
    list_.choices.push_back(plan);
    plan.choice = {"compute bf16 + kv bf16", "combined", "What `sterling serve` does unless told otherwise."};
    plan.kv = {KvType::kBf16, KvType::kBf16};
    list_.choices.push_back(plan);
  }

  bool stored(const auto& is) const {
    return std::any_of(checked_.bound.begin(), checked_.bound.end(), [&](const auto& b) { return is(b.format); });
  }

  void add_activations() {
    if (wishes_.activations == "none") return;
    const bool quantised = stored([](WeightFormat f) { return f != WeightFormat::kPlain; });
    const bool all = wishes_.activations == "all-linear" || (wishes_.activations == "auto" && !quantised);
    bool any = false;
    for (const auto format : {ActivationFormat::kFp8Tensor, ActivationFormat::kFp8Token, ActivationFormat::kNvfp4}) {
      if (!all && !stored([&](WeightFormat f) { return pairs(format, f); })) continue;
      any = true;
      ChoicePlan plan;
      plan.activations = format;
      plan.scope = all ? ActivationScope::kAllLinear : ActivationScope::kQuantised;
      const std::string_view name = quant::activation_format_name(format);
      plan.choice = {
          fmt::format("activations {}", name), "activations",
          fmt::format("Inputs of {} rounded to {}, weights as they are: what {} adds to weight-only.",
                      all ? "all large products" : "products with quantised weights", name, engine_name(format))};
      list_.choices.push_back(plan);
      if (all || format == ActivationFormat::kFp8Token) continue;
      plan.choice = {
          fmt::format("{} + kv fp8_e4m3 at 1.0", engine_name(format)), "combined",
          fmt::format("Activations in {} and K and V in E4M3 at 1.0, both: what a GPU engine computes that finds no "
                      "K/V scales.",
                      name)};
      plan.kv = {KvType::kFp8E4m3, KvType::kFp8E4m3};
      list_.choices.push_back(plan);
    }
    if (!any) {
      list_.notes.emplace_back(
          "the checkpoint stores no FP8 or NVFP4 weights, so no engine would quantise activations; --activations "
          "all-linear measures what it "
          "would cost");
    }
    if (all && any) {
      list_.notes.emplace_back(
          "activations are rounded at every large product, though the checkpoint doesn't ask for it; NVFP4's scale of "
          "a whole tensor isn't "
          "calibrated, each token gets its own");
    }
  }

  void add_weights() {
    for (const lab::WeightTarget target : wishes_.weights) {
      const std::string_view name = lab::weight_target_name(target);
      ChoicePlan plan;
      plan.weights = target;
      plan.choice = {
          fmt::format("weights {}", name), "weights",
          fmt::format("Weights quantised to {} as `sterling quantize` does it, everything else as the reference.",
                      name)};
      list_.choices.push_back(plan);
      plan.activations = target == lab::WeightTarget::kNvfp4 ? ActivationFormat::kNvfp4 : ActivationFormat::kFp8Token;
      plan.choice = {fmt::format("{} by quantize", engine_name(*plan.activations)), "combined",
                     fmt::format("Weights quantised to {} and inputs of these products rounded to {}.", name,
                                 quant::activation_format_name(*plan.activations))};
      if (target == lab::WeightTarget::kFp8Block) plan.choice.name = "W8A8 (blocks) by quantize";
      list_.choices.push_back(plan);
    }
  }

  Status keep_named() {
    ChoicePlan reference = reference_choice();
    list_.choices.push_back(std::move(reference));
    std::string all;
    for (const ChoicePlan& plan : list_.choices) all += (all.empty() ? "" : ", ") + plan.choice.name;
    for (const std::string& name : wishes_.only) {
      const auto is = [&](const ChoicePlan& plan) { return plan.choice.name == name; };
      if (std::any_of(list_.choices.begin(), list_.choices.end(), is)) continue;
      return make_error(ErrorCode::kInvalidArgument, fmt::format("--choice {}: accepted for this model: {}", name, all),
                        "--choice");
    }
    std::erase_if(list_.choices, [&](const ChoicePlan& plan) {
      return std::find(wishes_.only.begin(), wishes_.only.end(), plan.choice.name) == wishes_.only.end();
    });
    return {};
  }

  const formats::Checkpoint& checkpoint_;
  const model::CheckResult& checked_;
  const ChoiceWishes& wishes_;
  ChoiceList list_;
};

std::string_view module_of(std::string_view tensor) {
  for (const std::string_view suffix : {".weight_packed", ".weight"}) {
    if (tensor.ends_with(suffix)) return tensor.substr(0, tensor.size() - suffix.size());
  }
  return tensor;
}

}  // namespace

ChoicePlan reference_choice() {
  ChoicePlan plan;
  plan.choice = {"reference", "none", "The reference again; anything but 0 is a fault."};
  return plan;
}

Expected<ChoiceList> list_choices(const formats::Checkpoint& checkpoint, const model::CheckResult& checked,
                                  const ChoiceWishes& wishes) {
  return Lister(checkpoint, checked, wishes).run();
}

bool rounds_inputs_of(const ChoicePlan& choice, const quant::StoredWeight& weight) {
  if (!choice.activations) return false;
  if (choice.scope == ActivationScope::kQuantised) return pairs(*choice.activations, weight.format);
  return !lab::always_plain(module_of(weight.codes.name));
}

}  // namespace sterling::cli
