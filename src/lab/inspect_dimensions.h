// Sizes from a config.json of any family, supported or not. Reads leniently: a key that is absent, null or of another type
// leaves its field empty (the family's own strict reader in model/ is what decides whether a model runs).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>

#include <boost/json.hpp>

#include "lab/inspect.h"
#include "spec/model_spec.h"

namespace sterling::lab {

// text_config where there is one, else the object itself.
const boost::json::object& text_config(const boost::json::object& config);

// The first of `keys` that holds an integer from 0 to 2^40.
std::optional<std::int64_t> config_integer(const boost::json::object& config,
                                           std::initializer_list<std::string_view> keys);

ModelDimensions read_dimensions(const boost::json::object& config);

// Bytes of K and V per token, over the layers whose cache grows with the sequence, in the layout of plan/memory.h; for
// multi-head latent attention its compressed vector. Empty when the configuration lacks a size.
std::optional<KvBytesPerToken> kv_bytes_per_token(const boost::json::object& config, const ModelDimensions& dimensions);
KvBytesPerToken kv_bytes_per_token(const ModelSpec& spec);

// Bytes of recurrent state per sequence: 0 for models without linear attention, the formula of plan/memory.h for Gated DeltaNet,
// empty for other kinds of state.
std::optional<std::int64_t> state_bytes_per_sequence(const boost::json::object& config,
                                                     const ModelDimensions& dimensions);

}  // namespace sterling::lab
