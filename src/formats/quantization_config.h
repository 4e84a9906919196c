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
#include <unordered_set>
#include <vector>

#include <boost/json.hpp>

#include "base/status.h"

namespace sterling::formats {

// Module names as exclude_modules, ignore and modules_to_not_convert spell them: a name (also of a parent, or the end of a name), a shell pattern, or "re:" and a
// regular expression that matches from the start.
class ModulePatterns {
 public:
  ModulePatterns() = default;
  explicit ModulePatterns(std::vector<std::string> patterns);
  bool matches(std::string_view module) const;
  const std::vector<std::string>& all() const { return patterns_; }
  // Whether one pattern matches one module, by the same rules.
  static bool match(const std::string& pattern, std::string_view module);

 private:
  std::vector<std::string> patterns_;
  // Most patterns are names or "name*"; a large checkpoint has thousands of modules to hold against hundreds of them.
  std::unordered_set<std::string> names_;
  std::unordered_set<std::string> prefixes_;
  std::vector<std::size_t> prefix_lengths_;
  std::vector<std::string> general_;
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
  // Elements of a block of FP8 scales: weight_block_size, 128 x 128 where nothing usable stands there.
  std::int64_t block_rows = 128;
  std::int64_t block_cols = 128;
  // Why these weights can't be loaded, and what would work instead. Empty: nothing against it.
  std::optional<std::string> refusal;

  // Is this module announced as quantised?
  bool announces(std::string_view module) const;
};

// `hf_quant_config` may be null.
Expected<QuantizationConfig> read_quantization_config(const boost::json::object& config,
                                                      const boost::json::object* hf_quant_config);

// The method of weights that only their tensors betray (AWQ and GPTQ's qweight, bitsandbytes' SCB, SVD's low-rank parts): its name, or empty.
std::string_view foreign_method_of_tensor(std::string_view tensor_name);
// One sentence that refuses a method by name.
std::string refuse_method(std::string_view place, std::string_view method);

}  // namespace sterling::formats
