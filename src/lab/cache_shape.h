// What a model keeps per token and per sequence, read from its configuration: of families that run here as their own reader has it, of others as far as
// the configuration says.
#pragma once

#include <boost/json.hpp>

#include "lab/inspect.h"
#include "plan/cache_shape.h"

namespace sterling::lab {

// Latent caches (DeepSeek), layers with a sliding window (GPT-OSS) and Gated DeltaNet are read; sizes that differ by layer (Gemma 4) and other kinds of state
// (Mamba-2) leave their part unknown.
plan::CacheShape read_cache_shape(const boost::json::object& config, const ModelDimensions& dimensions);

}  // namespace sterling::lab
