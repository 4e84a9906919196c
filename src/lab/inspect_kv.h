// What a checkpoint wishes for its KV cache and which scales it brings: from config.json's quantization_config, from
// hf_quant_config.json and from the K/V scale tensors.
//
// The two files of one checkpoint can disagree, and engines differ in which one they read (SGLang the section in config.json if
// there is one, vLLM config.json alone): so every place is listed, the silent ones too.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <boost/json.hpp>

#include "formats/checkpoint.h"
#include "lab/inspect.h"

namespace sterling::lab {

// Canonical name of a wish as the files spell it: "FP8" and {"num_bits": 8, "type": "float"} are "fp8_e4m3". Empty for null,
// "none" and "auto"; what is not known is given in lower case as it stands.
std::optional<std::string> canonical_kv_wish(const boost::json::value& value);

// quantization_config of config.json (compression_config in older compressed-tensors files), wherever it stands; nullptr
// without one.
const boost::json::object* quantization_section(const boost::json::object& config);
// The section with the fields of hf_quant_config.json.
const boost::json::object* quantization_section_of_hf_quant(const boost::json::object* hf_quant_config);

struct KvInspection {
  KvCacheFacts facts;
  std::vector<LintFinding> lint;
};

KvInspection inspect_kv(const formats::Checkpoint& checkpoint, const ModelDimensions& dimensions);

}  // namespace sterling::lab
