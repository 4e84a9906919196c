// Which KV cache type a checkpoint's metadata wishes for: config.json's quantization_config and ModelOpt's hf_quant_config.json. A wish:
// shown everywhere, obeyed only when the user asks for it (`--kv-cache-dtype checkpoint`).
//
// The two files of one checkpoint can disagree, and engines differ in which one they read (SGLang the section in config.json if
// there is one, vLLM config.json alone): so every place is listed, the silent ones too.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <boost/json.hpp>

#include "formats/checkpoint.h"

namespace sterling::formats {

// One place that may wish for a KV cache type.
struct KvWishSource {
  std::string file;          // "config.json"
  std::string key;           // "quantization_config.kv_cache_scheme"
  boost::json::value value;  // as it stands there; null when the place is silent
};

struct KvWish {
  std::optional<std::string> wish;  // canonical, of the first source that has one: "fp8_e4m3", "nvfp4", …
  std::vector<KvWishSource> sources;
  bool sources_disagree = false;
  bool modelopt = false;  // a source names ModelOpt as its producer: its cast recipe writes no scales and means 1.0
};

KvWish read_kv_wish(const Checkpoint& checkpoint);

// Canonical name of a wish as the files spell it: "FP8" and {"num_bits": 8, "type": "float"} are "fp8_e4m3". Empty for null,
// "none" and "auto"; what is not known is given in lower case as it stands.
std::optional<std::string> canonical_kv_wish(const boost::json::value& value);

// quantization_config of config.json (compression_config in older compressed-tensors files), wherever it stands; nullptr
// without one.
const boost::json::object* quantization_section(const boost::json::object& config);
// The section with the fields of hf_quant_config.json.
const boost::json::object* quantization_section_of_hf_quant(const boost::json::object* hf_quant_config);

}  // namespace sterling::formats
