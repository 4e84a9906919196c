// K and V scales that a checkpoint's tensors or a scale file hold, per full-attention layer, ready for the resolver (plan/precision.h).
//
// Tensor names (per layer L, P the model's prefix; F32, BF16, F16 or F64, one value or one per KV head):
//   P layers.L.self_attn.k_proj.k_scale, …v_proj.v_scale            ModelOpt
//   P layers.L.self_attn.k_scale, …v_scale                          compressed-tensors
//   P layers.L.self_attn.attn.k_scale, …attn.v_scale                as vLLM renames them
//   P layers.L.self_attn.k_proj.output_scale, …v_proj.output_scale  Quark
//   P layers.L.self_attn.kv_scale                                   deprecated: one value for both
#pragma once

#include "base/status.h"
#include "formats/checkpoint.h"
#include "formats/kv_scales_file.h"
#include "plan/precision.h"
#include "spec/model_spec.h"

namespace sterling::model {

// kCorrupt: a scale tensor of another type or shape, or a value that is not finite and positive; it names file, tensor and value.
// Layers without scales are listed as missing, not an error.
Expected<plan::ScalesFound> find_kv_scales(const formats::Checkpoint& checkpoint, const ModelSpec& spec);

// The same from a file. kInvalidArgument: the file is for another number of layers or KV heads, or names a layer without a KV cache.
Expected<plan::ScalesFound> kv_scales_from_file(const formats::KvScalesFile& file, const ModelSpec& spec);

}  // namespace sterling::model
