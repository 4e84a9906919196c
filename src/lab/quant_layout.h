// Which weights of a model are quantised, and what the files that say so look like: what `sterling synth` and `sterling quantize` share. Pure functions.
//
// Published checkpoints keep some matrices in high precision: the output head, routers and gates of shared experts, the small projections and the convolution of
// Gated DeltaNet layers, MTP heads and vision towers. NVFP4 files of hybrid MoE models quantise the routed experts alone (Qwen3.5-397B-A17B-NVFP4),
// others every large matrix of a decoder layer. The same rules here.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json.hpp>

#include "base/status.h"
#include "formats/safetensors_writer.h"

namespace sterling::lab {

// kFp8: one scale per tensor; kFp8Block: one per 128 x 128 elements.
enum class WeightTarget { kBf16, kFp8, kFp8Block, kNvfp4 };

// "bf16", "fp8", "fp8-block", "nvfp4".
std::string_view weight_target_name(WeightTarget target);
Expected<WeightTarget> parse_weight_target(std::string_view name);

inline constexpr std::int64_t kFp8BlockSize = 128;

// A matrix of the model: "model.layers.0.mlp.up_proj", without ".weight".
struct MatrixModule {
  std::string name;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
};

// Kept in high precision whatever the target.
bool always_plain(std::string_view module);
bool is_routed_expert(std::string_view module);

// Answers per module. `excludes` are shell patterns (* and ?) on module names.
class QuantRules {
 public:
  QuantRules(WeightTarget target, std::span<const MatrixModule> modules, std::vector<std::string> excludes);
  bool quantises(const MatrixModule& module) const;
  WeightTarget target() const { return target_; }
  // The first pattern that matches none of the modules; empty when all match something.
  const std::string& idle_pattern() const { return idle_; }

 private:
  WeightTarget target_;
  bool experts_only_ = false;
  std::vector<std::string> excludes_;
  std::string idle_;
};

// Modules that engines multiply as one matrix get one scale per tensor: q/k/v, gate/up, GDN's qkv/z. The same key for the same scale.
std::string scale_group(const std::string& module);

// The tensors of a quantised matrix, codes first: weight, then weight_scale (and weight_scale_2) or weight_scale_inv; with `activations`
// also input_scale, where the target has one.
std::vector<formats::PlannedTensor> quantised_parts(const MatrixModule& module, WeightTarget target, bool activations);

// The metadata of a quantised checkpoint.
struct QuantMetadata {
  WeightTarget target = WeightTarget::kNvfp4;
  bool activations = false;            // input scales are there: engines may quantise activations too
  std::vector<std::string> plain;      // modules left in high precision
  std::vector<std::string> quantised;  // and the others
  std::string version;                 // of the producer
};
// Names as they are (fp8-block) or, as ModelOpt writes them, with a pattern where a whole part of a layer is left alone.
std::vector<std::string> excluded_modules(const QuantMetadata& metadata);
// config.json's quantization_config.
boost::json::object quantization_config(const QuantMetadata& metadata);
// hf_quant_config.json; empty for fp8-block, which has none.
boost::json::object hf_quant_config(const QuantMetadata& metadata);

// * any text, ? any one character; the whole of `text`.
bool matches_pattern(std::string_view pattern, std::string_view text);

// JSON for people: two spaces a level, keys in their order, a newline at the end.
std::string pretty_json(const boost::json::value& value);

}  // namespace sterling::lab
