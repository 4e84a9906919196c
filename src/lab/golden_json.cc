// The document that `sterling golden --json` prints; names fixed by the command's contract, the rest added.
#include <cmath>
#include <utility>

#include "lab/golden.h"

namespace sterling::lab {
namespace {

boost::json::value number(double value) {
  if (!std::isfinite(value)) return nullptr;
  return value;
}

template <typename T>
boost::json::value optional(const std::optional<T>& value) {
  if (!value) return nullptr;
  if constexpr (std::is_same_v<T, double>) return number(*value);
  return boost::json::value(*value);
}

// error / bound, above 1 when over.
boost::json::value share_of_bound(const GoldenResult& result) {
  if (result.bound > 0.0) return number(result.max_abs_error / result.bound);
  return result.within() ? boost::json::value(0.0) : boost::json::value(nullptr);
}

boost::json::object entry_json(const GoldenResult& result) {
  return {{"name", result.name},
          {"max_abs_error", number(result.max_abs_error)},
          {"hf_fp32_error", optional(result.hf_fp32_error)},
          {"bound", number(result.bound)},
          {"share_of_bound", share_of_bound(result)}};
}

boost::json::object prompt_json(const GoldenPromptResult& prompt) {
  const GoldenResult& logits = prompt.logits;
  boost::json::value ratio = nullptr;
  if (logits.hf_fp32_error && *logits.hf_fp32_error > 0.0) ratio = number(logits.max_abs_error / *logits.hf_fp32_error);
  boost::json::array flips;
  for (const GoldenFlip& flip : prompt.flips) {
    flips.push_back({{"expert_layer", flip.layer},
                     {"position", flip.position},
                     {"margin", number(flip.margin)},
                     {"allowed_margin", number(flip.allowed)},
                     {"excused", flip.excused()}});
  }
  return {{"name", prompt.name},
          {"length", prompt.length},
          {"comparable_positions", prompt.comparable},
          {"expert_flips", std::move(flips)},
          {"max_abs_logit_error", number(logits.max_abs_error)},
          {"max_abs_reference", number(logits.max_abs_reference)},
          {"hf_fp32_error", optional(logits.hf_fp32_error)},
          {"ratio_to_hf_fp32", ratio},
          {"bound", number(logits.bound)},
          {"share_of_bound", share_of_bound(logits)},
          {"top1_matches", prompt.top1_matches},
          {"top1_total", prompt.top1_total},
          {"greedy_tokens", prompt.greedy.tokens},
          {"greedy_decided", prompt.greedy.decided},
          {"greedy_matched", prompt.greedy.matched},
          {"passed", logits.within() && prompt.greedy.passed()}};
}

boost::json::object layer_json(std::size_t index, const GoldenLayerResult& layer) {
  boost::json::array entries;
  for (const GoldenResult& entry : layer.entries) entries.push_back(entry_json(entry));
  return {{"layer", index},
          {"max_abs_error", number(layer.hidden.max_abs_error)},
          {"hf_fp32_error", optional(layer.hidden.hf_fp32_error)},
          {"bound", number(layer.hidden.bound)},
          {"share_of_bound", share_of_bound(layer.hidden)},
          {"entries", std::move(entries)}};
}

// Sums over the prompts; the mismatch shown is the one that matters most: an excused one only if there is no other.
boost::json::object greedy_json(const std::vector<GoldenPromptResult>& prompts) {
  GoldenGreedy total;
  const GoldenPromptResult* shown = nullptr;
  for (const GoldenPromptResult& prompt : prompts) {
    const GoldenGreedy& greedy = prompt.greedy;
    total.tokens += greedy.tokens;
    total.decided += greedy.decided;
    total.matched += greedy.matched;
    if (!greedy.first_mismatch) continue;
    const auto rank = [](const GoldenGreedy& g) { return std::pair(g.passed(), *g.first_mismatch); };
    if (shown == nullptr || rank(greedy) < rank(shown->greedy)) shown = &prompt;
  }
  boost::json::object out{{"tokens", total.tokens}, {"decided", total.decided}, {"matched", total.matched}};
  out["first_mismatch"] = shown == nullptr ? boost::json::value(nullptr) : optional(shown->greedy.first_mismatch);
  out["margin_at_mismatch"] =
      shown == nullptr ? boost::json::value(nullptr) : optional(shown->greedy.margin_at_mismatch);
  out["mismatch_prompt"] = shown == nullptr ? boost::json::value(nullptr) : boost::json::value(shown->name);
  return out;
}

}  // namespace

boost::json::object golden_report_json(const GoldenReport& report) {
  boost::json::array prompts;
  for (const GoldenPromptResult& prompt : report.prompts) prompts.push_back(prompt_json(prompt));
  boost::json::array layers;
  for (std::size_t i = 0; i < report.layers.size(); ++i) layers.push_back(layer_json(i, report.layers[i]));
  boost::json::object out{{"family", report.family},
                          {"compute", golden_compute_name(report.compute)},
                          {"isa", report.isa},
                          {"passed", report.passed()},
                          {"prompts", std::move(prompts)},
                          {"layers", std::move(layers)}};
  out["embedding"] = report.embedding ? boost::json::value(entry_json(*report.embedding)) : nullptr;
  out["final_norm"] = report.final_norm ? boost::json::value(entry_json(*report.final_norm)) : nullptr;
  out["first_layer_over_bound"] = optional(report.first_layer_over_bound);
  out["greedy"] = greedy_json(report.prompts);
  return out;
}

}  // namespace sterling::lab
