// What the Qwen hybrids share (Qwen3-Next, Qwen3.5, Qwen3.6): Gated DeltaNet layers with a gated full-attention layer every few, zero-centred
// norms (except the GDN output norm), RoPE on a part of the head.
//
// Deviation: A_log and the GDN norm are used in FP32 as stored; transformers rounds them to BF16 when it loads in BF16.
#pragma once

#include <string>

#include "base/status.h"
#include "formats/object_reader.h"
#include "model/blocks.h"
#include "model/config_fields.h"
#include "model/weight_binder.h"
#include "spec/model_spec.h"

namespace sterling::model {

// The text model's fields but those of its MLPs, wherever they stand.
void read_hybrid_text(const formats::ObjectReader& config, ModelSpec& spec, DenseMlp dense);

// Reads the text model's fields with `read_text` from a flat file, or from text_config of a full checkpoint, whose text tensors have the
// prefix `model.language_model.`.
using ReadText = void (*)(const formats::ObjectReader& config, ModelSpec& spec);
Expected<ModelSpec> read_flat(const formats::ObjectReader& config, ReadText read_text);
Expected<ModelSpec> read_flat_or_full(const formats::ObjectReader& config, ReadText read_text);

// How a GDN layer's input projections are stored. kSplit: in_proj_qkv, _z, _b, _a (Qwen3.5). kFused: in_proj_qkvz and in_proj_ba, rows grouped by
// key head (Qwen3-Next). The tensors that are there decide; the argument is what to expect when neither is.
enum class GdnProjections { kSplit, kFused };
GdnBlock bind_gdn(const ModelSpec& spec, WeightBinder& binder, const std::string& module, std::int32_t state_layer,
                  GdnProjections expected);

// The whole decoder; the MTP head and the vision tower are known and skipped.
DecoderWeights bind_hybrid_decoder(const ModelSpec& spec, WeightBinder& binder, backend::RopeId rope,
                                   GdnProjections expected);

}  // namespace sterling::model
