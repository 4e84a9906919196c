// Runs an audit: the reference and as many choices as memory holds go through each prompt in step, so that whole distributions are compared and none is
// kept. Each finished choice and prompt is written to a state file.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/audit_choices.h"
#include "cli/audit_subject.h"
#include "formats/checkpoint.h"
#include "lab/audit_state.h"
#include "spec/model_spec.h"

namespace sterling::cli {

struct AuditTask {
  const formats::Checkpoint* checkpoint = nullptr;
  // The same model with other weights, for choices that ask for them.
  std::map<lab::WeightTarget, const formats::Checkpoint*> quantised;
  const ModelSpec* spec = nullptr;
  AuditMachine machine;
  std::vector<ChoicePlan> choices;
  std::vector<std::vector<std::int32_t>> prompts;
  std::int32_t greedy_steps = 0;
  std::int64_t memory_available = 0;                                    // bytes
  std::function<void(std::int64_t done, std::int64_t total)> progress;  // in tokens of all choices
  std::function<bool()> stopped;
};

// Until everything is in `state`. kResourceExhausted: reference and one choice don't fit, with the numbers. kCancelled: stopped.
Status run_audit(const AuditTask& task, lab::AuditState& state);

}  // namespace sterling::cli
