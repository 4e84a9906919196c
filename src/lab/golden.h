// The comparison behind `sterling golden`: a model's logits, layers, K/V, Gated DeltaNet state and greedy text against reference
// vectors (golden_data.h), by the rules of golden_bounds.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <boost/json.hpp>

#include "base/status.h"
#include "lab/golden_bounds.h"
#include "lab/golden_data.h"
#include "lab/golden_routing.h"
#include "spec/model_spec.h"

namespace sterling::lab {

// What a model computed for one prompt of n tokens. Row-major.
struct GoldenRun {
  std::vector<float> logits;  // [n][vocab]
  // Only when internals were wanted:
  std::vector<float>
      hidden;  // [layers + 2][n][hidden] embeddings, residual stream after each layer, after the final norm
  std::vector<float> mixer, mlp;             // [layers][n][hidden] block outputs before the residual addition
  std::vector<std::int32_t> router_experts;  // [layers with experts][n][experts per token], most probable first
  std::vector<float> router_weights;         // the same
  // [layers with experts][n] last chosen logit minus the best one not chosen, and the largest |logit|
  std::vector<float> router_margins, router_magnitudes;
  std::vector<float> k, v;  // [full-attention layers][kv_heads][n][head_dim], read back as the cache holds them
  std::vector<std::byte> k_codes, v_codes;  // the same before the scale; empty where K and V are no E4M3 codes
  std::vector<float> gdn_state;             // [GDN layers][value_heads][key_dim][value_dim]
  std::vector<float> gdn_conv;  // [GDN layers][channels][kernel - 1] last raw inputs of the convolution, oldest first
};

// The model under test. Not thread-safe.
class GoldenSubject {
 public:
  virtual ~GoldenSubject() = default;
  virtual const ModelSpec& spec() const = 0;
  // One prompt from an empty cache.
  virtual Expected<GoldenRun> run(std::span<const std::int32_t> tokens, bool want_internals) = 0;
  // The `steps` tokens that follow, each the one with the largest logit (the lowest id among equals). End-of-text is not honoured.
  virtual Expected<std::vector<std::int32_t>> greedy(std::span<const std::int32_t> tokens, std::int32_t steps) = 0;
};

// One entry against its reference.
struct GoldenResult {
  std::string
      name;  // "logits", "hidden", "mixer", "mlp", "k", "v", "k_codes", "v_codes" (the error is a count), "gdn_state", "gdn_conv"
  double max_abs_error = 0.0;  // infinity when a value is not finite
  double max_abs_reference = 0.0;
  std::optional<double> hf_fp32_error;  // absent where the reference holds no float32 values
  double bound = 0.0;

  bool within() const { return max_abs_error <= bound; }
};

// Free-running greedy text. A step counts as decided when the reference's margin exceeds twice the prompt's logit bound: two logits that
// are each off by less than the bound can't change places then. (The text grows beyond the prompt that the bound was measured on; emulated BF16
// roundings eat up at most 1.8 * 2^16 Y of any margin over all continuations, see tools/golden/rounding.py.) Comparison ends at the
// first undecided step, and at the first difference, because beyond it the texts are different ones.
struct GoldenGreedy {
  std::int64_t tokens = 0;   // of the reference
  std::int64_t decided = 0;  // leading decided steps
  std::int64_t matched = 0;  // leading equal tokens, undecided steps included
  std::optional<std::int64_t> first_mismatch;
  std::optional<double> margin_at_mismatch;

  bool passed() const { return !first_mismatch || *first_mismatch >= decided; }
};

struct GoldenPromptResult {
  std::string name;
  std::int64_t length = 0;
  // BF16 and experts: choices that differ from the FP32 mode's (golden_routing.h). Positions from `comparable` on are not compared.
  std::vector<GoldenFlip> flips;
  std::int64_t comparable = 0;  // at most length + greedy tokens - 1
  GoldenResult logits;
  std::int64_t top1_matches = 0;
  std::int64_t top1_total = 0;
  GoldenGreedy greedy;
};

struct GoldenLayerResult {
  GoldenResult hidden;                // residual stream after the layer
  std::vector<GoldenResult> entries;  // mixer, mlp, router, and what the layer keeps in caches
};

struct GoldenReport {
  std::string family;  // model_type
  GoldenCompute compute = GoldenCompute::kFp32;
  std::string isa;
  std::vector<GoldenPromptResult> prompts;
  // Of the prompt that has internals.
  std::optional<GoldenResult> embedding, final_norm;
  std::vector<GoldenLayerResult> layers;
  std::optional<std::int64_t>
      first_layer_over_bound;  // an embedding over its bound counts as layer 0, the final norm as layer `layers`

  bool passed() const;
};

// Runs everything. `isa` only goes into the report. `unrounded`: the same model in FP32 mode, for models with experts under kBf16; else null. Errors: the model's own, and kInvalidArgument when the reference belongs to
// a model of other dimensions.
Expected<GoldenReport> compare_golden(GoldenSubject& subject, const GoldenData& data, GoldenCompute compute,
                                      std::string isa, GoldenSubject* unrounded = nullptr);

// The document of `sterling golden --json`. Infinite errors are null.
boost::json::object golden_report_json(const GoldenReport& report);

}  // namespace sterling::lab
