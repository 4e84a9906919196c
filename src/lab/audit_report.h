// The report of `sterling audit`: choices ranked by what they cost, as text, JSON and a self-contained HTML page. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <boost/json.hpp>

#include "lab/audit_cost.h"

namespace sterling::lab {

// What is changed against the reference, one thing at a time unless the cause says "combined".
struct AuditChoice {
  std::string name;   // "kv fp8_e4m3 at 1.0"
  std::string cause;  // "kv", "compute", "activations", "weights", "combined", "none"
  std::string what;   // one sentence
};

// The greedy continuation of a prompt, as far as reference and choice agree.
struct GreedyCost {
  std::int32_t steps = 0;          // compared
  std::int32_t first_change = -1;  // the first step with another token; -1: none
  float margin = 0.0F;             // the reference's at that step

  bool diverged() const { return first_change >= 0; }
};

// One prompt under one choice.
struct PromptCost {
  std::vector<PositionCost> rows;
  GreedyCost greedy;
};

struct ChoiceReport {
  AuditChoice choice;
  CostSummary all;
  std::vector<CostSummary> by_depth;  // as AuditReport::bins
  std::int64_t prompts = 0;
  std::int64_t diverged = 0;           // of their greedy continuations
  std::optional<GreedyCost> earliest;  // the first divergence of all
  std::optional<std::int64_t> earliest_prompt;
};

struct AuditFacts {
  std::string version;
  std::string model;  // as asked for
  std::string reference = "compute fp32, K and V fp32";
  std::string fingerprint;  // lab/fingerprint.h
  std::int64_t limit = 0;   // positions that the model was made for
  std::string prompts;      // the file
  std::string prompts_sha256;
  std::int64_t prompt_count = 0;
  std::int64_t tokens = 0;
  std::int64_t greedy_steps = 0;
  std::int64_t chunk = 0;
  std::vector<std::string> notes;  // what was left out and why
};

struct AuditReport {
  AuditFacts facts;
  std::vector<DepthBin> bins;
  std::vector<ChoiceReport> choices;  // the costliest first: by mean divergence, then by name
};

ChoiceReport report_choice(const AuditChoice& choice, const std::vector<PromptCost>& prompts,
                           const std::vector<DepthBin>& bins);
void rank(std::vector<ChoiceReport>& choices);

std::string audit_text(const AuditReport& report);
// One document; infinite numbers are null.
boost::json::object audit_json(const AuditReport& report);
// Well-formed XML and HTML; styles and plots inline, no script, nothing fetched.
std::string audit_html(const AuditReport& report);

}  // namespace sterling::lab
