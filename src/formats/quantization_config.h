// What a checkpoint's metadata says about its weights: config.json's quantization_config (compression_config in older compressed-tensors files) and
// ModelOpt's hf_quant_config.json, read into one form. A cross-check, never a decision: which format a weight has follows from its tensors
// (model/weight_binder.h). Sources: NVIDIA Model-Optimizer's export, compressed-tensors' config, Hugging Face's FineGrainedFP8Config.
//
// Pure functions over parsed JSON. Input is hostile: a field of the wrong type is kCorrupt and names file and path.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <boost/json.hpp>

#include "base/status.h"
#include "formats/module_patterns.h"

namespace sterling::formats {

// A group of config_groups that quantises weights: which modules, and what the numbers of its weights make.
struct QuantizationGroup {
  ModulePatterns targets;      // by name
  bool linears = false;        // "Linear": all matrices
  bool other_classes = false;  // names a class of modules; which modules are of it can't be told from names
  std::string
      algorithm;  // by ModelOpt's names: "NVFP4", "FP8_PB_WO", …; "FP8" of any scales is "FP8_ANY"; empty: not known
};

struct QuantizationConfig {
  bool announced = false;   // weights are said to be quantised
  std::string file;         // that says so: "config.json" or "hf_quant_config.json"
  std::string method;       // as it stands there: "NVFP4", "fp8", "compressed-tensors nvfp4-pack-quantized"
  ModulePatterns ignored;   // modules left alone
  std::string ignored_key;  // "quantization.exclude_modules", …
  bool mixed = false;       // only the modules of `layers` are quantised
  std::unordered_map<std::string, std::string> layers;  // module → algorithm
  std::optional<std::int64_t>
      activation_bits;  // of declared input activations, the smallest; empty when they stay as they are
  std::vector<QuantizationGroup> groups;  // config_groups, where they quantise weights
  // Elements of a block of FP8 scales: weight_block_size (then has_blocks), 128 x 128 where nothing usable stands there.
  bool has_blocks = false;
  std::int64_t block_rows = 128;
  std::int64_t block_cols = 128;
  // Why these weights can't be loaded, and what would work instead. Empty: nothing against it.
  std::optional<std::string> refusal;

  // Is this module announced as quantised?
  bool announces(std::string_view module) const;
  // The algorithm of an announced module: of its entry in quantized_layers, of its group, or the method of the whole checkpoint.
  std::string algorithm_of(std::string_view module) const;
  // The stored format that follows, as inspection names formats: "nvfp4", "fp8_e4m3_block", …, or the beginning of such a name ("fp8_e4m3": with whatever
  // scales). Empty: nothing follows.
  std::string_view announced_format(std::string_view module) const;
};

// quantization_config of config.json (compression_config in older compressed-tensors files), wherever it stands: the first that is not null. `value` is null
// without one.
struct QuantizationSection {
  std::string_view key = "quantization_config";
  const boost::json::value* value = nullptr;
};
QuantizationSection find_quantization_section(const boost::json::object& config);

// `hf_quant_config` may be null. `folder` is named in messages.
Expected<QuantizationConfig> read_quantization_config(const boost::json::object& config,
                                                      const boost::json::object* hf_quant_config,
                                                      std::string_view folder = {});

// The method of weights that only their tensors betray (AWQ and GPTQ's qweight, bitsandbytes' SCB, SVD's low-rank parts): its name, or empty.
std::string_view foreign_method_of_tensor(std::string_view tensor_name);
// One sentence that refuses a method by name.
std::string refuse_method(std::string_view place, std::string_view method);

}  // namespace sterling::formats
