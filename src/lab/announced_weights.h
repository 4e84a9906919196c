// The tensors that a checkpoint of this configuration holds, told without its weights: the family's own list of what it binds, in the formats that
// the metadata announces. For `sterling inspect` on a bare config.json.
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
  // Of the text model, sorted by name: name, type and shape. No data.
  std::vector<TensorView> text;
  // MTP head and vision tower, which no family lists: their parameters stand in high precision and have this many bytes.
  std::int64_t mtp_bytes = 0;
  std::int64_t vision_bytes = 0;
  std::string plain_format;  // "bf16", …
};

// Empty where the family is unknown, or where the metadata does not say enough (which modules, which scales).
std::optional<AnnouncedWeights> announced_weights(const boost::json::object& config,
                                                  const boost::json::object* hf_quant_config,
                                                  const ParameterCounts& parameters);

}  // namespace sterling::lab
