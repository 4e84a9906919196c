// The tensors of a Qwen3.5 vision tower, for checkpoints that are to look like published ones; nothing here runs it.
#pragma once

#include <string_view>
#include <vector>

#include <boost/json.hpp>

#include "base/status.h"
#include "model/weight_binder.h"

namespace sterling::lab {

// Empty where the configuration has no vision_config. Names as published: "model.visual.…".
Expected<std::vector<model::WeightBinder::Wanted>> vision_tensors(const boost::json::object& config,
                                                                  std::string_view config_file);

}  // namespace sterling::lab
