// Which part of the model every stored tensor belongs to and in which format it is stored, from names, types and shapes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lab/inspect.h"
#include "tensor/tensor_view.h"

namespace sterling::lab {

// "embedding", "lm_head", "norms", "attention", "linear_attention", "mlp", "router", "routed_experts", "shared_expert", "mtp",
// "vision", "audio", "other". `layers`: decoder layers; a layer with a higher index is an MTP head (DeepSeek), if there is one.
std::string_view weight_group(std::string_view name, std::int64_t layers, bool has_mtp);

// The module whose weight a scale tensor scales ("model.layers.0.mlp.up_proj" of "….up_proj.weight_scale_2"), or empty when the
// name is no scale's.
std::string_view scaled_module(std::string_view name);

struct WeightSummary {
  std::vector<WeightGroup> groups;  // ordered by group as a reader would, then by bytes
  ByteCounts bytes;
  ParameterCounts parameters;
  std::vector<LintFinding> lint;  // weights whose scales are missing, scales whose weight is
  std::int64_t quantised_tensors = 0;
};

// `tensors` sorted by name, as a Checkpoint gives them.
WeightSummary summarise_weights(std::span<const TensorView> tensors, const ModelDimensions& dimensions);

// text parameters with the routed experts counted at experts_per_token / experts.
std::optional<std::int64_t> active_parameters(std::int64_t text, std::int64_t routed,
                                              const ModelDimensions& dimensions);

}  // namespace sterling::lab
