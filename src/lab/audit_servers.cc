#include "lab/audit_servers.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sterling::lab {
namespace {

namespace json = boost::json;

Error none() {
  return make_error(ErrorCode::kUnsupported, "the answer holds no logprobs");
}

// vLLM writes numbers that JSON has not as null or as -9999.
double number_or_nan(const json::value& value) {
  return value.is_number() ? value.to_number<double>() : std::numeric_limits<double>::quiet_NaN();
}

std::string text_of(const json::value* value) {
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

const json::array* array_at(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_array() ? &value->get_array() : nullptr;
}

Expected<std::vector<ServerStep>> read_content(const json::array& content) {
  std::vector<ServerStep> steps;
  for (const json::value& entry : content) {
    const json::object* object = entry.if_object();
    if (object == nullptr || object->if_contains("logprob") == nullptr) return none();
    ServerStep step{text_of(object->if_contains("token")), number_or_nan(object->at("logprob")), {}};
    if (const json::array* top = array_at(*object, "top_logprobs")) {
      for (const json::value& other : *top) {
        const json::object* pair = other.if_object();
        if (pair == nullptr || pair->if_contains("logprob") == nullptr) continue;
        step.top.emplace_back(text_of(pair->if_contains("token")), number_or_nan(pair->at("logprob")));
      }
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

Expected<std::vector<ServerStep>> read_lists(const json::object& logprobs) {
  const json::array* tokens = array_at(logprobs, "tokens");
  const json::array* values = array_at(logprobs, "token_logprobs");
  const json::array* tops = array_at(logprobs, "top_logprobs");
  if (tokens == nullptr || values == nullptr || tokens->size() != values->size()) return none();
  std::vector<ServerStep> steps;
  for (std::size_t i = 0; i < tokens->size(); ++i) {
    ServerStep step{text_of(&(*tokens)[i]), number_or_nan((*values)[i]), {}};
    const json::object* top = tops != nullptr && i < tops->size() ? (*tops)[i].if_object() : nullptr;
    if (top != nullptr) {
      for (const auto& [token, value] : *top) step.top.emplace_back(std::string(token), number_or_nan(value));
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

const double* find(const ServerStep& step, const std::string& token) {
  for (const auto& [name, logprob] : step.top) {
    if (name == token) return &logprob;
  }
  return step.token == token ? &step.logprob : nullptr;
}

double term(double p, double q) {
  if (p <= 0.0) return 0.0;
  return q > 0.0 ? p * std::log(p / q) : std::numeric_limits<double>::infinity();
}

float margin(const ServerStep& step) {
  double second = -std::numeric_limits<double>::infinity();
  for (const auto& [name, logprob] : step.top) {
    if (name != step.token) second = std::max(second, logprob);
  }
  return static_cast<float>(step.logprob - second);
}

}  // namespace

Expected<std::vector<ServerStep>> read_steps(const json::object& choice) {
  const json::value* value = choice.if_contains("logprobs");
  if (value == nullptr || !value->is_object()) return none();
  const json::object& logprobs = value->get_object();
  if (const json::array* content = array_at(logprobs, "content")) return read_content(*content);
  return read_lists(logprobs);
}

double divergence_at_least(const ServerStep& a, const ServerStep& b) {
  if (!std::isfinite(b.logprob)) return std::numeric_limits<double>::infinity();
  double sum = 0.0, rest_a = 1.0, rest_b = 1.0;
  std::vector<std::pair<std::string, double>> listed = a.top;
  const auto is_own = [&](const auto& pair) { return pair.first == a.token; };
  if (std::none_of(listed.begin(), listed.end(), is_own)) listed.emplace_back(a.token, a.logprob);
  for (const auto& [token, logprob] : listed) {
    const double* other = find(b, token);
    if (other == nullptr || !std::isfinite(logprob)) continue;
    const double p = std::exp(logprob), q = std::exp(*other);
    sum += term(p, q);
    rest_a -= p;
    rest_b -= q;
  }
  // What is left by rounding alone is nothing; a rest that one side hasn't at all is as small as that side's rounding.
  constexpr double kRounding = 1e-6;
  if (rest_a > kRounding) sum += term(rest_a, std::max(rest_b, kRounding));
  return std::max(0.0, sum);
}

PromptCost compare_answers(const ServerAnswer& a, const ServerAnswer& b) {
  PromptCost cost;
  const std::size_t count = std::min(a.steps.size(), b.steps.size());
  for (std::size_t i = 0; i < count; ++i) {
    const ServerStep& ours = a.steps[i];
    const ServerStep& theirs = b.steps[i];
    PositionCost row;
    row.kl = divergence_at_least(ours, theirs);
    const double* same = find(theirs, ours.token);
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    row.reference_logprob = same != nullptr ? ours.logprob : kNan;
    row.choice_logprob = same != nullptr ? *same : kNan;
    row.reference_margin = margin(ours);
    row.choice_top = ours.token == theirs.token ? 0 : 1;
    row.position = static_cast<std::int32_t>(a.prompt_tokens + static_cast<std::int64_t>(i));
    cost.rows.push_back(row);
    cost.greedy.steps = static_cast<std::int32_t>(i) + 1;
    if (!row.flipped()) continue;
    cost.greedy.first_change = static_cast<std::int32_t>(i);
    cost.greedy.margin = row.reference_margin;
    break;
  }
  return cost;
}

}  // namespace sterling::lab
