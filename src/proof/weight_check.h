// Packed weights against the file's values.
#pragma once

#include <cstdint>
#include <string>

#include "backend/backend.h"
#include "model/weight_binder.h"

namespace sterling::proof {

struct WeightFault {
  std::string what;  // empty: none
  std::int64_t compared = 0;
};

// The first and the last block of a matrix. Values that the format makes from one scale must be equal; those of two scales may differ by the
// order of two roundings.
WeightFault check_weight(const backend::Backend& backend, const model::WeightBinder::Placed& placed);

}  // namespace sterling::proof
