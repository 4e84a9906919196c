#include "lab/golden.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace sterling::lab {
namespace {

std::span<const double> slice(const GoldenTensor& tensor, std::size_t index) {
  return std::span(tensor.values).subspan(index * tensor.slice_size(), tensor.slice_size());
}

std::span<const float> slice(const std::vector<float>& values, std::size_t index, std::size_t size) {
  return std::span(values).subspan(index * size, size);
}

Error wrong_shape(const GoldenData& data, const std::string& entry, std::string_view what, std::int64_t wanted,
                  std::int64_t got) {
  return make_error(ErrorCode::kInvalidArgument,
                    fmt::format("{}: {} has {} {}, the model has {}; is this the reference of another model?",
                                data.file, entry, wanted, what, got),
                    entry);
}

std::size_t argmax(std::span<const double> row) {
  return static_cast<std::size_t>(std::max_element(row.begin(), row.end()) - row.begin());
}
std::size_t argmax(std::span<const float> row) {
  return static_cast<std::size_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

// ---- logits and text -------------------------------------------------------------------------------------------------

struct LogitBound {
  std::optional<double> distance;  // of Hugging Face's float32 run
  double bound = 0.0;
};

// What quantised K and V add to a bound (golden_bounds.h).
double quantised_slack(bool quantised, GoldenCompute compute, std::size_t tokens, double shift) {
  if (!quantised || (compute == GoldenCompute::kFp32 && tokens <= kQuantisedTightTokens)) return 0.0;
  return kQuantisedShare * shift;
}

LogitBound logit_bound(const GoldenPrompt& prompt, bool quantised, GoldenCompute compute, const ModelSpec& spec) {
  LogitBound out;
  if (prompt.logits.narrow) {
    out.distance = max_abs_error(std::span<const double>(prompt.logits.narrow->values), prompt.logits.wide.values);
  }
  const double magnitude = max_abs(prompt.logits.wide.values);
  const double slack = quantised_slack(quantised, compute, prompt.tokens.size(), prompt.quantisation_shift);
  const double distance = slack > 0.0 ? prompt.plain_distance : out.distance.value_or(0.0);
  out.bound = error_bound(compute, yardstick(distance, magnitude), spec.gdn.has_value()) + slack;
  return out;
}

// The prompt and all of its continuation that is fed back, in both modes: where the choices of experts part (golden_routing.h).
Status find_flips(GoldenSubject& subject, GoldenSubject& unrounded, const GoldenPrompt& prompt, GoldenCompute compute,
                  GoldenPromptResult& result) {
  std::vector<std::int32_t> text = prompt.tokens;
  if (!prompt.greedy_tokens.empty()) {
    text.insert(text.end(), prompt.greedy_tokens.begin(), prompt.greedy_tokens.end() - 1);
  }
  Expected<GoldenRun> rounded = subject.run(text, true);
  if (!rounded) return rounded.error();
  Expected<GoldenRun> wanted = unrounded.run(text, true);
  if (!wanted) return wanted.error();
  const auto view = [](const GoldenRun& run) {
    return RoutedRun{run.router_experts, run.router_margins, run.router_magnitudes};
  };
  const double magnitude = max_abs(prompt.logits.wide.values);
  const double bound = logit_bound(prompt, false, compute, subject.spec()).bound;
  result.flips = first_flips(view(*wanted), view(*rounded), text.size(), magnitude > 0.0 ? bound / magnitude : 0.0);
  result.comparable = first_flipped_position(result.flips, result.comparable);
  return {};
}

Expected<GoldenPromptResult> compare_logits(const GoldenData& data, const GoldenPrompt& prompt, const GoldenRun& run,
                                            GoldenCompute compute, const ModelSpec& spec, GoldenPromptResult out) {
  const std::int64_t vocab = spec.vocab_size;
  const std::int64_t wanted = prompt.logits.wide.shape[1];
  if (wanted != vocab) return wrong_shape(data, prompt.name + ".logits.f64", "logits per token", wanted, vocab);
  const auto width = static_cast<std::size_t>(vocab);
  if (run.logits.size() != prompt.tokens.size() * width) {
    return wrong_shape(data, prompt.name + ".logits.f64", "tokens", static_cast<std::int64_t>(prompt.tokens.size()),
                       static_cast<std::int64_t>(run.logits.size() / width));
  }
  out.logits.name = "logits";
  out.logits.max_abs_reference = max_abs(prompt.logits.wide.values);
  for (std::size_t i = 0; i < prompt.positions.size(); ++i) {
    if (prompt.positions[i] >= out.comparable) continue;
    const auto got = slice(run.logits, static_cast<std::size_t>(prompt.positions[i]), width);
    const auto reference = slice(prompt.logits.wide, i);
    out.logits.max_abs_error = std::max(out.logits.max_abs_error, max_abs_error(got, reference));
    out.top1_matches += argmax(got) == argmax(reference) ? 1 : 0;
    out.top1_total += 1;
  }
  const LogitBound bound = logit_bound(prompt, data.quantised_kv, compute, spec);
  out.logits.hf_fp32_error = bound.distance;
  out.logits.bound = bound.bound;
  return out;
}

Status compare_greedy(GoldenSubject& subject, const GoldenPrompt& prompt, GoldenPromptResult& result) {
  const auto steps = static_cast<std::int32_t>(prompt.greedy_tokens.size());
  Expected<std::vector<std::int32_t>> got = subject.greedy(prompt.tokens, steps);
  if (!got) return got.error();
  GoldenGreedy& greedy = result.greedy;
  greedy.tokens = steps;
  const auto undecided = std::find_if(prompt.greedy_margins.begin(), prompt.greedy_margins.end(),
                                      [&](double margin) { return margin <= 2.0 * result.logits.bound; });
  // Step i is decided at position length - 1 + i.
  greedy.decided = std::min(undecided - prompt.greedy_margins.begin(),
                            std::max<std::ptrdiff_t>(0, result.comparable - (result.length - 1)));
  const auto limit = std::min(got->size(), prompt.greedy_tokens.size());
  std::size_t equal = 0;
  while (equal < limit && (*got)[equal] == prompt.greedy_tokens[equal]) ++equal;
  greedy.matched = static_cast<std::int64_t>(equal);
  if (equal < prompt.greedy_tokens.size()) {
    greedy.first_mismatch = greedy.matched;
    greedy.margin_at_mismatch = prompt.greedy_margins[equal];
  }
  return {};
}

// ---- layers ----------------------------------------------------------------------------------------------------------

// The reference of one prompt's internals against a run, layer by layer.
class LayerComparison {
 public:
  LayerComparison(const GoldenData& data, const GoldenPrompt& prompt, const GoldenRun& run, const ModelSpec& spec,
                  GoldenCompute compute, std::span<const GoldenFlip> flips)
      : data_(data),
        prompt_(prompt),
        internals_(*prompt.internals),
        run_(run),
        spec_(spec),
        compute_(compute),
        flipped_(layer_of_flip(flips)) {}

  Expected<GoldenReport> compare() {
    GoldenReport out;
    const GoldenEntry& hidden = internals_.hidden;
    const auto layers = static_cast<std::size_t>(spec_.layer_count());
    const auto rows = static_cast<std::size_t>(hidden.wide.shape[0]);
    if (rows != layers + 2)
      return wrong_shape(data_, entry_name("hidden"), "layers", hidden.wide.shape[0] - 2, spec_.layer_count());
    check_size("hidden", hidden.wide, run_.hidden, "values");
    check_size("mixer", internals_.mixer, run_.mixer);
    check_size("mlp", internals_.mlp, run_.mlp);
    check_size("k", internals_.k, run_.k);
    check_size("v", internals_.v, run_.v);
    check_size("gdn.state", internals_.gdn_state, run_.gdn_state);
    check_conv_size();
    if (internals_.router_weights) {
      check_size("router.weights", internals_.router_weights->wide, run_.router_weights, "values");
    }
    if (error_) return *error_;

    for (std::size_t row = 0; row < rows; ++row) {
      GoldenResult result = compare_slice("hidden", hidden, run_.hidden, row, 0.0);
      if (!internals_.hidden_shift.empty()) {
        result.bound += quantised_slack(true, compute_, prompt_.tokens.size(), internals_.hidden_shift[row]);
      }
      magnitude_.push_back(result.max_abs_reference);
      distance_.push_back(result.hf_fp32_error.value_or(0.0));
      if (row == 0) {
        out.embedding = result;
      } else if (row == rows - 1) {
        out.final_norm = result;
      } else {
        out.layers.push_back({std::move(result), {}});
      }
    }
    std::size_t attention = 0;
    std::size_t linear = 0;
    std::size_t routed = 0;
    for (std::size_t layer = 0; layer < layers; ++layer) {
      std::vector<GoldenResult>& entries = out.layers[layer].entries;
      const double stream = std::max(distance_[layer], distance_[layer + 1]);
      if (internals_.mixer)
        entries.push_back(compare_layer("mixer", *internals_.mixer, run_.mixer, layer, layer, stream));
      if (internals_.mlp) entries.push_back(compare_layer("mlp", *internals_.mlp, run_.mlp, layer, layer, stream));
      if (spec_.has_experts(static_cast<std::int32_t>(layer))) {
        if (internals_.router_weights) entries.push_back(compare_router(routed, layer));
        ++routed;
      }
      if (spec_.layers[layer] == LayerKind::kFullAttention) {
        if (internals_.k) entries.push_back(compare_layer("k", *internals_.k, run_.k, attention, layer, 0.0));
        if (internals_.v) entries.push_back(compare_layer("v", *internals_.v, run_.v, attention, layer, 0.0));
        if (compute_ == GoldenCompute::kFp32) {
          compare_codes("k_codes", internals_.k_codes, run_.k_codes, attention, entries);
          compare_codes("v_codes", internals_.v_codes, run_.v_codes, attention, entries);
        }
        ++attention;
      } else {
        if (internals_.gdn_state) {
          entries.push_back(compare_layer("gdn_state", *internals_.gdn_state, run_.gdn_state, linear, layer, 0.0));
        }
        if (internals_.gdn_conv)
          entries.push_back(compare_layer("gdn_conv", conv_reference_, run_.gdn_conv, linear, layer, 0.0));
        ++linear;
      }
    }
    leave_out_consequences(out);
    return out;
  }

 private:
  // The decoder layer of the lowest flip within the prompt; `layers` without one.
  std::size_t layer_of_flip(std::span<const GoldenFlip> flips) const {
    const std::int32_t layers = spec_.layer_count();
    const std::int32_t among_experts =
        first_flipped_layer(flips, static_cast<std::int64_t>(prompt_.tokens.size()), layers);
    std::int32_t seen = 0;
    for (std::int32_t layer = 0; layer < layers; ++layer) {
      if (spec_.has_experts(layer) && seen++ == among_experts) return static_cast<std::size_t>(layer);
    }
    return static_cast<std::size_t>(layers);
  }

  // From the router of layer `flipped_` on nothing is comparable: no bound.
  void leave_out_consequences(GoldenReport& report) const {
    if (flipped_ >= report.layers.size()) return;
    constexpr double kNone = std::numeric_limits<double>::infinity();
    for (std::size_t layer = flipped_; layer < report.layers.size(); ++layer) {
      report.layers[layer].hidden.bound = kNone;
      for (GoldenResult& entry : report.layers[layer].entries) {
        if (layer > flipped_ || entry.name == "mlp" || entry.name == "router") entry.bound = kNone;
      }
    }
    if (report.final_norm) report.final_norm->bound = kNone;
  }

  // Chosen experts must be the reference's (infinite error if not), and their weights close. Weights are a softmax, so logits off by e
  // move them by at most e / 2; e by the rule of golden_bounds.h: relative noise of the layer times the largest logit.
  GoldenResult compare_router(std::size_t index, std::size_t layer) const {
    const GoldenTensor& wide = internals_.router_weights->wide;
    const auto k = static_cast<std::size_t>(wide.shape[2]);
    const std::size_t count = wide.slice_size();
    const auto weights = slice(wide, index);
    const auto got_weights = slice(run_.router_weights, index, count);
    GoldenResult out;
    out.name = "router";
    out.max_abs_reference = max_abs(weights);
    for (std::size_t i = 0; i < count; ++i) {
      const auto token = index * count + i / k * k;
      const auto ids = std::span(run_.router_experts).subspan(token, k);
      const auto at = std::find(ids.begin(), ids.end(), internals_.router_experts[index * count + i]);
      const double error =
          at == ids.end()
              ? std::numeric_limits<double>::infinity()
              : std::abs(static_cast<double>(got_weights[i / k * k + static_cast<std::size_t>(at - ids.begin())]) -
                         weights[i]);
      out.max_abs_error =
          std::max(out.max_abs_error, std::isfinite(error) ? error : std::numeric_limits<double>::infinity());
    }
    const std::size_t tokens = count / k;
    float logit = 0.0F;
    for (const float value : slice(run_.router_magnitudes, index, tokens)) logit = std::max(logit, value);
    out.bound = error_bound(compute_, yardstick(noise(layer) * static_cast<double>(logit) / 2.0, out.max_abs_reference),
                            spec_.gdn.has_value());
    return out;
  }

  // Codes one by one; the error is how many differ, and all do where the run stored none.
  void compare_codes(std::string_view name, const std::vector<std::byte>& wanted, const std::vector<std::byte>& got,
                     std::size_t index, std::vector<GoldenResult>& entries) const {
    if (wanted.empty()) return;
    const std::size_t size = wanted.size() / static_cast<std::size_t>(spec_.count(LayerKind::kFullAttention));
    GoldenResult out;
    out.name = name;
    out.max_abs_reference = static_cast<double>(size);
    for (std::size_t i = index * size; i < (index + 1) * size; ++i) {
      const bool equal = got.size() == wanted.size() && got[i] == wanted[i];
      out.max_abs_error += equal ? 0.0 : 1.0;
    }
    entries.push_back(std::move(out));
  }

  std::string entry_name(std::string_view what) const { return fmt::format("{}.{}.f64", prompt_.name, what); }

  void check_size(std::string_view what, const GoldenTensor& wide, const std::vector<float>& got,
                  std::string_view unit) {
    if (error_ || wide.values.size() == got.size()) return;
    error_ = wrong_shape(data_, entry_name(what), unit, static_cast<std::int64_t>(wide.values.size()),
                         static_cast<std::int64_t>(got.size()));
  }
  void check_size(std::string_view what, const std::optional<GoldenEntry>& entry, const std::vector<float>& got) {
    if (entry) check_size(what, entry->wide, got, "values");
  }

  // The reference holds `kernel` columns, of which an engine needs and gives the last kernel - 1.
  void check_conv_size() {
    if (!internals_.gdn_conv || error_) return;
    conv_reference_.wide = without_oldest_column(internals_.gdn_conv->wide);
    if (internals_.gdn_conv->narrow) conv_reference_.narrow = without_oldest_column(*internals_.gdn_conv->narrow);
    check_size("gdn.conv", conv_reference_.wide, run_.gdn_conv, "needed values");
  }
  static GoldenTensor without_oldest_column(const GoldenTensor& tensor) {
    GoldenTensor out{tensor.shape, {}};
    const auto columns = static_cast<std::size_t>(tensor.shape.back());
    for (std::size_t i = 0; i < tensor.values.size(); ++i) {
      if (i % columns != 0) out.values.push_back(tensor.values[i]);
    }
    out.shape.back() -= 1;
    return out;
  }

  // `estimate` stands in for the HF distance where the reference has no float32 values.
  GoldenResult compare_slice(std::string_view name, const GoldenEntry& entry, const std::vector<float>& got,
                             std::size_t index, double estimate) const {
    const auto reference = slice(entry.wide, index);
    GoldenResult out;
    out.name = name;
    out.max_abs_error = max_abs_error(slice(got, index, reference.size()), reference);
    out.max_abs_reference = max_abs(reference);
    double distance = estimate;
    if (entry.narrow) {
      distance = max_abs_error(slice(*entry.narrow, index), reference);
      out.hf_fp32_error = distance;
    }
    out.bound = error_bound(compute_, yardstick(distance, out.max_abs_reference), spec_.gdn.has_value());
    return out;
  }

  // Index `index` of an entry that belongs to decoder layer `layer`; `least` is the estimate's lower limit.
  GoldenResult compare_layer(std::string_view name, const GoldenEntry& entry, const std::vector<float>& got,
                             std::size_t index, std::size_t layer, double least) const {
    return compare_slice(name, entry, got, index, std::max(least, noise(layer) * max_abs(slice(entry.wide, index))));
  }

  // Relative distance of Hugging Face's float32 run in the residual stream around a layer.
  double noise(std::size_t layer) const {
    double noise = 0.0;
    for (const std::size_t row : {layer, layer + 1}) {
      if (magnitude_[row] > 0.0) noise = std::max(noise, distance_[row] / magnitude_[row]);
    }
    return noise;
  }

  const GoldenData& data_;
  const GoldenPrompt& prompt_;
  const GoldenInternals& internals_;
  const GoldenRun& run_;
  const ModelSpec& spec_;
  const GoldenCompute compute_;
  const std::size_t flipped_;
  GoldenEntry conv_reference_;
  std::vector<double> distance_;   // of each row of hidden, HF float32 from float64
  std::vector<double> magnitude_;  // of each row of hidden
  std::optional<Error> error_;
};

std::optional<std::int64_t> first_over_bound(const GoldenReport& report) {
  if (report.embedding && !report.embedding->within()) return 0;
  for (std::size_t layer = 0; layer < report.layers.size(); ++layer) {
    const GoldenLayerResult& result = report.layers[layer];
    const bool within = result.hidden.within() && std::all_of(result.entries.begin(), result.entries.end(),
                                                              [](const GoldenResult& e) { return e.within(); });
    if (!within) return static_cast<std::int64_t>(layer);
  }
  if (report.final_norm && !report.final_norm->within()) return static_cast<std::int64_t>(report.layers.size());
  return std::nullopt;
}

}  // namespace

bool GoldenReport::passed() const {
  return !first_layer_over_bound && std::all_of(prompts.begin(), prompts.end(), [](const GoldenPromptResult& prompt) {
    return prompt.logits.within() && prompt.greedy.passed() &&
           std::all_of(prompt.flips.begin(), prompt.flips.end(), [](const GoldenFlip& flip) { return flip.excused(); });
  });
}

Expected<GoldenReport> compare_golden(GoldenSubject& subject, const GoldenData& data, GoldenCompute compute,
                                      std::string isa, GoldenSubject* unrounded) {
  const ModelSpec& spec = subject.spec();
  GoldenReport report;
  std::vector<GoldenPromptResult> prompts;
  for (const GoldenPrompt& prompt : data.prompts) {
    Expected<GoldenRun> run = subject.run(prompt.tokens, prompt.internals.has_value());
    if (!run) return run.error();
    GoldenPromptResult place;
    place.name = prompt.name;
    place.length = static_cast<std::int64_t>(prompt.tokens.size());
    place.comparable =
        place.length + std::max<std::int64_t>(1, static_cast<std::int64_t>(prompt.greedy_tokens.size())) - 1;
    if (unrounded != nullptr) {
      if (Status status = find_flips(subject, *unrounded, prompt, compute, place); !status) return status.error();
    }
    Expected<GoldenPromptResult> result = compare_logits(data, prompt, *run, compute, spec, std::move(place));
    if (!result) return result.error();
    if (Status status = compare_greedy(subject, prompt, *result); !status) return status.error();
    prompts.push_back(std::move(*result));
    if (!prompt.internals) continue;
    Expected<GoldenReport> layers = LayerComparison(data, prompt, *run, spec, compute, prompts.back().flips).compare();
    if (!layers) return layers.error();
    report = std::move(*layers);
  }
  report.family = spec.model_type;
  report.compute = compute;
  report.isa = std::move(isa);
  report.prompts = std::move(prompts);
  report.first_layer_over_bound = first_over_bound(report);
  return report;
}

}  // namespace sterling::lab
