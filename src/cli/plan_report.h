// A capacity plan for people and as one JSON document.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <boost/json.hpp>

#include "plan/capacity.h"

namespace sterling::cli {

struct PlanReport {
  std::string path;
  std::string architecture;
  plan::Engine engine = plan::Engine::kSterling;
  std::int32_t tp = 1;
  std::optional<std::int64_t> replicas;
  plan::Capacity chosen;
  std::vector<plan::Capacity> alternatives;  // the other types of KV cache
  std::vector<std::string> notes;            // assumptions that no rule knows of
  bool explain = false;
};

boost::json::object plan_json(const PlanReport& report);
std::string plan_text(const PlanReport& report);

}  // namespace sterling::cli
