// What loading a checkpoint's weights will take, told from its headers.
#pragma once

#include <cstdint>

#include "backend/weight_sizes.h"
#include "base/status.h"
#include "formats/checkpoint.h"

namespace sterling::model {

// Bytes. Weights are packed tensor by tensor (a layer's experts expert by expert) and each source is let go at once.
struct WeightPlan {
  std::int64_t packed_bytes = 0;          // equals backend::Backend::weights().bytes after loading
  std::int64_t largest_source_bytes = 0;  // of the checkpoint's files in use at a time, at most
  // At most, while loading. Besides it the process has its own pages, and each thread 16 rows of the widest matrix as FP32.
  std::int64_t peak_bytes() const { return packed_bytes + largest_source_bytes; }
};

// Reads headers and scales that stand alone; milliseconds. Errors as check() of model.h; kNotFound: no weights there.
Expected<WeightPlan> plan_weights(const formats::Checkpoint& checkpoint, const backend::WeightSizes& sizes);

}  // namespace sterling::model
