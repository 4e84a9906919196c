// What weights will take in a backend's memory, told from headers: pure arithmetic on shapes and stored types. A backend
// allocates by the same formulas, so that a plan made with these sizes is what loading arrives at, to the byte.
#pragma once

#include <cstdint>
#include <span>

#include "backend/backend.h"
#include "quant/stored_weight.h"
#include "tensor/tensor_view.h"

namespace sterling::backend {

class WeightSizes {
 public:
  virtual ~WeightSizes() = default;

  // Of one call to load_linear (a single weight; its bias is a vector) or reserve_linears with all their fill_linear, the padding of
  // the piece of memory included. The views need a type and a shape, not data.
  virtual std::int64_t linears(std::span<const quant::StoredWeight> weights, const RowSelection& rows,
                               ProductInput input) const = 0;
  // Of load_vector, load_conv and a bias.
  virtual std::int64_t vector(std::int64_t elements) const = 0;
  virtual std::int64_t embedding(const TensorView& table) const = 0;
};

}  // namespace sterling::backend
