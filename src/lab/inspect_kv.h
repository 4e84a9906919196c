// What a checkpoint wishes for its KV cache and which scales it brings: from config.json's quantization_config, from
// hf_quant_config.json and from the K/V scale tensors.
#pragma once

#include <vector>

#include "formats/checkpoint.h"
#include "lab/inspect.h"

namespace sterling::lab {

struct KvInspection {
  KvCacheFacts facts;
  std::vector<LintFinding> lint;
};

KvInspection inspect_kv(const formats::Checkpoint& checkpoint, const ModelDimensions& dimensions);

}  // namespace sterling::lab
