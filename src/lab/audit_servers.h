// Two servers against each other by what they tell of themselves: the most probable tokens of each step. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <boost/json.hpp>

#include "base/status.h"
#include "lab/audit_report.h"

namespace sterling::lab {

// One generated token and the alternatives to it.
struct ServerStep {
  std::string token;     // as the server spells it
  double logprob = 0.0;  // natural
  std::vector<std::pair<std::string, double>> top;
};

struct ServerAnswer {
  std::int64_t prompt_tokens = 0;
  std::vector<ServerStep> steps;
};

// `choice` is an element of "choices", in the shape of chat completions (logprobs.content), or of completions (logprobs.tokens and so on).
// kUnsupported: no logprobs in it.
Expected<std::vector<ServerStep>> read_steps(const boost::json::object& choice);

// The divergence of b from a that is certain: both distributions are taken together over the tokens that both list, and one for all others. Never more than the
// KL divergence over the whole vocabulary. Infinity where b holds a number that isn't finite.
double divergence_at_least(const ServerStep& a, const ServerStep& b);

// Steps up to the first where the tokens differ, which is the last that can be compared.
PromptCost compare_answers(const ServerAnswer& a, const ServerAnswer& b);

}  // namespace sterling::lab
