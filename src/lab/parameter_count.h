// Parameters of a model that is only a config.json: the tensors which the families' checkpoints hold, counted from sizes.
// Families: llama, mistral, qwen2, qwen3, qwen3_moe, mixtral, qwen3_next, qwen3_5 and qwen3_5_moe with MTP head and vision tower; those of
// lab/announced_families.h by the tensors listed there. What a file stores twice (an MTP head's own copy of the embedding) counts twice.
#pragma once

#include <optional>

#include <boost/json.hpp>

#include "lab/inspect.h"

namespace sterling::lab {

// Counts of another family are empty.
ParameterCounts count_parameters(const boost::json::object& config, const ModelDimensions& dimensions);

}  // namespace sterling::lab
