// What the resolver of precision (plan/precision.h) needs to know of a checkpoint, gathered from the layers that read it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "formats/checkpoint.h"
#include "lab/inspect.h"
#include "plan/precision.h"
#include "spec/model_spec.h"

namespace sterling::cli {

plan::MetadataWish metadata_wish(const formats::Checkpoint& checkpoint);

// The checkpoint's tensors, or `file` (--kv-scales) instead of them. Errors name the tensor, or the file and what is wrong with it.
Expected<plan::ScalesFound> find_scales(const formats::Checkpoint& checkpoint, const ModelSpec& spec,
                                        const std::optional<std::string>& file);

std::vector<plan::StoredWeights> stored_weights(const lab::Inspection& inspection);

// Bits of the input activations that the checkpoint declares, the smallest; empty: none.
std::optional<std::int64_t> declared_activation_bits(const formats::Checkpoint& checkpoint);

// Resolves what the wishes come to. Scales that are broken in the checkpoint stop only the types that need them.
struct PrecisionRequest {
  const formats::Checkpoint* checkpoint = nullptr;
  const ModelSpec* spec = nullptr;
  const lab::Inspection* inspection = nullptr;  // may be null: no rows for weights
  plan::BackendCapabilities backend;
  plan::PrecisionWishes wishes;
  std::optional<std::string> kv_scales_file;
};
Expected<plan::Precision> resolve(const PrecisionRequest& request);

}  // namespace sterling::cli
