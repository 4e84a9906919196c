// What quantising does with each tensor of a source checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "formats/checkpoint.h"
#include "lab/quant_layout.h"
#include "tensor/tensor_view.h"

namespace sterling::lab {

// One matrix: `module.rows` rows of the source tensor (counted as quant/decode.h does) from `first_row` on, and where its parts go.
struct QuantizeMatrix {
  MatrixModule module;
  const TensorView* source = nullptr;
  std::int64_t first_row = 0;
  std::string scale_group;
  bool last_of_source = true;  // no later matrix comes out of the same tensor
};

struct QuantizeStep {
  const TensorView* copy = nullptr;      // a tensor that stays as it is …
  std::optional<QuantizeMatrix> matrix;  // … or a matrix to quantise
  std::size_t first_output = 0;          // index of the (first) tensor written
};

struct QuantizePlan {
  std::vector<QuantizeStep> steps;
  std::vector<formats::PlannedTensor> outputs;
  QuantMetadata metadata;
};

// kUnsupported: a source that is GGUF, quantised already, or not a model that loads. kInvalidArgument: an exclusion that matches nothing, or nothing left to do.
Expected<QuantizePlan> plan_quantize(const formats::Checkpoint& source, WeightTarget target,
                                     const std::vector<std::string>& excludes, const std::string& version);

}  // namespace sterling::lab
