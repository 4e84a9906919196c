// `sterling audit MODEL`: choices, prompts and weights made ready, run, and put into a report.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/status.h"
#include "cli/audit_choices.h"
#include "cli/command.h"
#include "lab/audit_report.h"

namespace sterling::cli {

struct AuditModelOptions {
  std::string model;  // as asked for
  std::string prompts;
  std::int64_t context = 0;     // tokens per prompt at most; 0: what the model was made for
  std::int64_t max_tokens = 0;  // of all prompts; 0: all
  std::int32_t greedy = 0;      // steps after each prompt
  std::int32_t chunk = 0;       // tokens of a step
  ChoiceWishes wishes;
  std::optional<std::string> isa;
  std::size_t threads = 0;           // 0: one per physical core
  std::optional<std::string> state;  // absent: a file in the cache folder, removed at the end
  bool fresh = false;                // what a state file holds is dropped
  std::function<void(std::int64_t done, std::int64_t total)> progress;
  std::function<bool()> stopped;
};

// kCancelled: stopped; the state file is kept, and the same options go on from it.
Expected<lab::AuditReport> audit_model(const AuditModelOptions& options, const Invocation& invocation);

}  // namespace sterling::cli
