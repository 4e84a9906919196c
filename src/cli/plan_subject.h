// What `sterling plan` plans: a model's caches and weights, from headers alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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
  std::vector<std::string> notes;
};
PlanSubject read_plan_subject(const formats::Checkpoint& checkpoint);

// Weights of one of `ranks` ranks, with a line that says how they were counted. Empty: the configuration does not say enough.
struct RankWeights {
  std::optional<std::int64_t> bytes;
  std::string assumption;
};
RankWeights rank_weights(const PlanSubject& subject, plan::Engine engine, std::int32_t ranks);

}  // namespace sterling::cli
