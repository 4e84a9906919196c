// Which precision choices an audit measures: one change each against compute fp32 with K and V in fp32, and the combinations that people run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/status.h"
#include "formats/checkpoint.h"
#include "lab/audit_report.h"
#include "lab/quant_layout.h"
#include "model/model.h"
#include "plan/kv_format.h"
#include "quant/round_activations.h"

namespace sterling::cli {

// The products whose inputs are rounded where activations are emulated: of weights that the checkpoint stores in codes of that width, or of every
// matrix that quantised checkpoints quantise (not the output head, routers, and the small projections of GDN).
enum class ActivationScope { kQuantised, kAllLinear };

struct ChoicePlan {
  lab::AuditChoice choice;
  backend::Compute compute = backend::Compute::kFp32;
  plan::KvFormat kv{plan::KvType::kFp32, plan::KvType::kFp32};
  plan::KvScales scales = {};
  std::optional<quant::ActivationFormat> activations = std::nullopt;
  ActivationScope scope = ActivationScope::kQuantised;
  std::optional<lab::WeightTarget> weights = std::nullopt;  // the model is quantised to this first
};

struct ChoiceWishes {
  std::optional<std::string> kv_scales_file;
  std::string activations = "auto";        // "auto", "quantised", "all-linear", "none"
  std::vector<lab::WeightTarget> weights;  // besides
  std::vector<std::string> only;           // names; empty: all. "reference" may be asked for: it must cost nothing
};

struct ChoiceList {
  std::vector<ChoicePlan> choices;
  std::vector<std::string> notes;  // what was left out and why
};

// The reference itself.
ChoicePlan reference_choice();

// kInvalidArgument: a name that is none (the message lists all), K/V scales that don't fit.
Expected<ChoiceList> list_choices(const formats::Checkpoint& checkpoint, const model::CheckResult& checked,
                                  const ChoiceWishes& wishes);

// Whether a choice rounds the inputs of this weight.
bool rounds_inputs_of(const ChoicePlan& choice, const quant::StoredWeight& weight);

}  // namespace sterling::cli
