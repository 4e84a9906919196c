// The tensors that a checkpoint of this configuration holds, told without its weights: the family's own list of what it binds (or, of families that can't be run,
// lab/announced_families.h), in the formats that the metadata announces. For `sterling inspect` on a bare config.json.
//
// What no metadata says is taken from the published files: routers, gates, embeddings and MTP heads stay plain; A_log and the norm of Gated DeltaNet are FP32 in
// Qwen3.5's own files. K/V scales, a few bytes a layer, are not counted: a wish for a KV cache does not say whether they were calibrated.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <boost/json.hpp>

#include "lab/inspect.h"
#include "tensor/tensor_view.h"

namespace sterling::lab {

struct AnnouncedWeights {
  // Sorted by name: name, type and shape. No data.
  std::vector<TensorView> tensors;
  // Where `tensors` are the text model's alone: MTP head and vision tower stand in high precision and have this many bytes.
  bool text_only = true;
  std::int64_t mtp_bytes = 0;
  std::int64_t vision_bytes = 0;
  std::string plain_format;  // "bf16", …
  std::optional<std::string> mtp_note;
};

// Empty where the family is unknown, or where the metadata does not say enough (which modules, which scales).
std::optional<AnnouncedWeights> announced_weights(const boost::json::object& config,
                                                  const boost::json::object* hf_quant_config,
                                                  const ModelDimensions& dimensions, const ParameterCounts& parameters);

}  // namespace sterling::lab
