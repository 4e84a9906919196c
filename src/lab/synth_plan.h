// From a configuration to the list of tensors that a published checkpoint of it would hold, and what goes into each.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json.hpp>

#include "base/status.h"
#include "formats/safetensors_writer.h"
#include "lab/quant_layout.h"
#include "lab/synth_values.h"

namespace sterling::lab {

struct SynthTensor {
  enum class Content { kPlain, kNvfp4Codes, kNvfp4Scales, kFp8Codes, kFp8BlockScales, kConstant };
  formats::PlannedTensor tensor;
  Content content = Content::kPlain;
  Distribution distribution;  // kPlain
  double scale = 0.0;         // kFp8BlockScales: around which; kConstant: the value
};

struct SynthPlan {
  boost::json::object config;           // for config.json, quantisation included
  boost::json::object hf_quant_config;  // empty: no such file
  std::vector<SynthTensor> tensors;
  std::int64_t quantised_modules = 0;
  std::int32_t layers = 0;
};

struct SynthRequest {
  WeightTarget weights = WeightTarget::kBf16;
  std::optional<std::int64_t> layers;  // fewer than the configuration has: the first ones
  bool mtp = true;                     // the MTP head, where the configuration has one
  bool vision = true;                  // the vision tower, where the configuration has one
  std::string version;                 // of the producer
};

// `config` as read from `config_file`; what it says of quantisation is replaced. kUnsupported: a family that is not known.
Expected<SynthPlan> plan_synth(boost::json::object config, std::string_view config_file, const SynthRequest& request);

}  // namespace sterling::lab
