// What `sterling plan` plans: a model's caches and weights, from headers alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "backend/cpu/workspace.h"
#include "base/status.h"
#include "formats/checkpoint.h"
#include "lab/inspect.h"
#include "plan/capacity.h"
#include "spec/model_spec.h"

namespace sterling::cli {

struct PlanSubject {
  lab::Inspection inspection;
  std::optional<ModelSpec> spec;  // families that run here
  plan::CacheShape shape;
  std::optional<std::int64_t> packed_bytes;  // the weights as Sterling holds them
  backend::InputWidths widths;               // what its workspace depends on
};
PlanSubject read_plan_subject(const formats::Checkpoint& checkpoint);

// Weights of one of `ranks` ranks, with a line that says how they were counted. Empty: the configuration does not say enough.
struct RankWeights {
  std::optional<std::int64_t> bytes;
  std::string assumption;
};
RankWeights rank_weights(const PlanSubject& subject, plan::Engine engine, std::int32_t ranks);

// Sterling's workspace on this machine: as many threads and the kernels that `serve` would take. Empty: the model does not run here.
Expected<std::optional<std::int64_t>> own_workspace(const PlanSubject& subject, std::int64_t max_sequences);

}  // namespace sterling::cli
