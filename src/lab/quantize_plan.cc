#include "lab/quantize_plan.h"

#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "formats/safetensors_writer.h"
#include "model/model.h"
#include "quant/decode.h"

namespace sterling::lab {
namespace {

using Wanted = model::WeightBinder::Wanted;

Error refused(const formats::Checkpoint& source, std::string_view why) {
  return make_error(ErrorCode::kUnsupported,
                    fmt::format("{}: {}; accepted: a folder of safetensors in BF16, FP16 or FP32", source.path(), why),
                    "MODEL");
}

// Is it a whole model of plain weights?
Status check_source(const formats::Checkpoint& source) {
  if (source.format() == formats::CheckpointFormat::kConfigOnly) return refused(source, "there are no weights");
  if (source.format() == formats::CheckpointFormat::kGguf) return refused(source, "this is a GGUF file");
  const auto* text = source.config().if_contains("text_config");
  for (const char* key : {"quantization_config", "compression_config"}) {
    const auto* outer = source.config().if_contains(key);
    const auto* inner = text != nullptr && text->is_object() ? text->get_object().if_contains(key) : nullptr;
    for (const auto* found : {outer, inner}) {
      if (found != nullptr && !found->is_null()) {
        return refused(source, fmt::format("config.json has {}: the weights are quantised already", key));
      }
    }
  }
  if (source.hf_quant_config() != nullptr) {
    return refused(source, "hf_quant_config.json is there: the weights are quantised already");
  }
  for (const TensorView& tensor : source.tensors()) {
    if (quant::can_decode(tensor.dtype)) continue;
    return refused(source, fmt::format("tensor {} is {}: the weights are quantised already", tensor.name,
                                       dtype_name(tensor.dtype)));
  }
  const auto model = model::check(source);
  return model ? Status{} : Status(model.error());
}

std::string module_of(const std::string& name) {
  constexpr std::string_view kSuffix = ".weight";
  return name.ends_with(kSuffix) ? name.substr(0, name.size() - kSuffix.size()) : name;
}

// The single experts in a fused 3-D tensor, in the order of its rows; empty for every other tensor.
std::vector<QuantizeMatrix> experts_of(const TensorView& tensor) {
  constexpr std::string_view kGateUp = ".experts.gate_up_proj";
  constexpr std::string_view kDown = ".experts.down_proj";
  const bool gate_up = tensor.name.ends_with(kGateUp);
  if (tensor.shape.size() != 3 || (!gate_up && !tensor.name.ends_with(kDown))) return {};
  const std::string prefix = tensor.name.substr(0, tensor.name.rfind('.'));
  const std::vector<const char*> parts = gate_up ? std::vector{"gate_proj", "up_proj"} : std::vector{"down_proj"};
  const std::int64_t rows = tensor.shape[1] / static_cast<std::int64_t>(parts.size());
  std::vector<QuantizeMatrix> out;
  for (std::int64_t expert = 0; expert < tensor.shape[0]; ++expert) {
    for (const char* part : parts) {
      QuantizeMatrix matrix;
      matrix.module = {fmt::format("{}.{}.{}", prefix, expert, part), rows, tensor.shape[2]};
      matrix.first_row = static_cast<std::int64_t>(out.size()) * rows;
      out.push_back(std::move(matrix));
    }
  }
  return out;
}

// The matrices of the model by module name.
Expected<std::unordered_map<std::string, MatrixModule>> model_matrices(const formats::Checkpoint& source) {
  auto wanted = model::list_tensors(source.config(), source.config_file());
  if (!wanted) return wanted.error();
  std::unordered_map<std::string, MatrixModule> out;
  for (const Wanted& w : *wanted) {
    if (w.kind != Wanted::Kind::kMatrix || w.shape.size() != 2) continue;
    const std::string module = module_of(w.name);
    out.try_emplace(module, MatrixModule{module, w.shape[0], w.shape[1]});
  }
  return out;
}

class Planner {
 public:
  Planner(QuantRules rules, QuantizePlan& plan) : rules_(std::move(rules)), plan_(plan) {}

  void add(const TensorView& tensor, const std::unordered_map<std::string, MatrixModule>& matrices) {
    std::vector<QuantizeMatrix> experts = experts_of(tensor);
    if (!experts.empty() && matrices.contains(experts.front().module.name)) {
      add_experts(tensor, std::move(experts));
      return;
    }
    const std::string module = module_of(tensor.name);
    const auto known = matrices.find(module);
    if (known != matrices.end() && rules_.quantises(known->second)) {
      QuantizeMatrix matrix;
      matrix.module = known->second;
      add_matrix(tensor, std::move(matrix));
      return;
    }
    if (tensor.name.ends_with(".weight") && tensor.shape.size() > 1) plan_.metadata.plain.push_back(module);
    for (const QuantizeMatrix& expert : experts) plan_.metadata.plain.push_back(expert.module.name);  // of an MTP head
    add_copy(tensor);
  }

 private:
  void add_copy(const TensorView& tensor) {
    plan_.steps.push_back({&tensor, std::nullopt, plan_.outputs.size()});
    plan_.outputs.push_back({tensor.name, tensor.dtype, tensor.shape});
  }

  void add_matrix(const TensorView& tensor, QuantizeMatrix matrix) {
    matrix.source = &tensor;
    matrix.scale_group = scale_group(matrix.module.name);
    plan_.metadata.quantised.push_back(matrix.module.name);
    const std::size_t first = plan_.outputs.size();
    for (auto& part : quantised_parts(matrix.module, rules_.target(), plan_.metadata.activations)) {
      plan_.outputs.push_back(std::move(part));
    }
    plan_.steps.push_back({nullptr, std::move(matrix), first});
  }

  void add_experts(const TensorView& tensor, std::vector<QuantizeMatrix> experts) {
    // All or none: a tensor half of which is quantised has no layout.
    for (const QuantizeMatrix& expert : experts) {
      if (rules_.quantises(expert.module)) continue;
      for (const QuantizeMatrix& e : experts) plan_.metadata.plain.push_back(e.module.name);
      add_copy(tensor);
      return;
    }
    for (std::size_t i = 0; i < experts.size(); ++i) {
      experts[i].last_of_source = i + 1 == experts.size();
      add_matrix(tensor, std::move(experts[i]));
    }
  }

  QuantRules rules_;
  QuantizePlan& plan_;
};

}  // namespace

Expected<QuantizePlan> plan_quantize(const formats::Checkpoint& source, WeightTarget target,
                                     const std::vector<std::string>& excludes, const std::string& version) {
  if (Status status = check_source(source); !status) return status.error();
  const auto matrices = model_matrices(source);
  if (!matrices) return matrices.error();
  std::vector<MatrixModule> modules;
  for (const auto& [name, module] : *matrices) modules.push_back(module);
  QuantRules rules(target, modules, excludes);
  if (!rules.idle_pattern().empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("--exclude {}: matches no matrix of the model; names are like {}",
                                  rules.idle_pattern(), modules.empty() ? "lm_head" : modules.front().name),
                      "--exclude");
  }
  QuantizePlan plan;
  plan.metadata.target = target;
  plan.metadata.activations = target == WeightTarget::kFp8;
  plan.metadata.version = version;
  Planner planner(std::move(rules), plan);
  for (const TensorView& tensor : source.tensors()) planner.add(tensor, *matrices);
  if (plan.metadata.quantised.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("{}: no matrix of this model becomes {}: all are excluded or have a width that is no "
                                  "multiple of 16",
                                  source.path(), weight_target_name(target)),
                      "--to");
  }
  return plan;
}

}  // namespace sterling::lab
