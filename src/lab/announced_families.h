// The tensors of published checkpoints of families that this version can't run but can count: Gemma 4, gpt-oss, MiniMax-M2, Nemotron-H, DeepSeek-V3.
// What model/'s own families do for themselves (model::list_tensors), in the names and the layout of the published files, MTP heads and vision towers included.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json.hpp>

#include "lab/inspect.h"
#include "model/weight_binder.h"
#include "tensor/dtype.h"

namespace sterling::lab {

struct FamilyLayout {
  // Matrices (also fused ones with a dimension of experts) may be quantised, everything else stays plain whatever the metadata says.
  std::vector<model::WeightBinder::Wanted> tensors;
  std::string_view fp32_suffix;         // tensors of this ending are FP32 in files of every format; empty: none
  std::optional<DType> plain;           // of files whose configuration does not name a type
  DType block_scales = DType::kBF16;    // of FP8 blocks
  std::optional<std::string> mtp_note;  // the configuration announces an MTP head that published files lack
};

// Empty for other families, and where a size is missing or absurd.
std::optional<FamilyLayout> list_family(const boost::json::object& config, const ModelDimensions& dimensions);

}  // namespace sterling::lab
