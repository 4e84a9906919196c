// A model family: how its config.json reads and how its tensors bind. One file in arch/ and one row in registry.cc each.
#pragma once

#include <span>
#include <string_view>

#include "base/status.h"
#include "formats/object_reader.h"
#include "model/blocks.h"
#include "model/weight_binder.h"
#include "spec/model_spec.h"

namespace sterling::model {

struct Architecture {
  std::string_view name;     // config.json "architectures"[0]
  std::string_view summary;  // for `sterling inspect` and error lists
  // Reads every key that may change the arithmetic and refuses what it can't do; unknown keys are refused by the caller.
  Expected<ModelSpec> (*read_spec)(const formats::ObjectReader& config);
  // Binds every tensor. `rope` is absent in a check-only run.
  DecoderWeights (*bind)(const ModelSpec& spec, WeightBinder& binder, backend::RopeId rope);
};

// All families, as a visible list.
std::span<const Architecture* const> architectures();

// By name; nullptr when unknown.
const Architecture* find_architecture(std::string_view name);

// Reads the configuration of a checkpoint with its family's file: kUnsupported names an unknown architecture and what is accepted;
// a key that nobody read and that is not known to be harmless fails too.
struct SpecResult {
  const Architecture* architecture = nullptr;
  ModelSpec spec;
};
Expected<SpecResult> read_model_spec(const boost::json::object& config, std::string_view config_file);

}  // namespace sterling::model
