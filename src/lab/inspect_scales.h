// Scales of rows, blocks and groups, read within a budget: NaN, negative, zero, all 1. They are weights' data and not headers, a sixteenth of an FP4 checkpoint's
// bytes, so large checkpoints are sampled, and a finding says so. Scales of one value are read whole elsewhere (quant::check, lint_quantisation).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "formats/checkpoint.h"
#include "lab/inspect.h"
#include "model/model.h"

namespace sterling::lab {

// Bytes of scales that inspection reads at most, and of one tensor where it samples.
inline constexpr std::int64_t kScaleBudget = std::int64_t{8} << 20;
inline constexpr std::int64_t kScaleSample = 16 << 10;

// The first fault among the weights that loading would pack; empty: none was read.
std::optional<std::string> lint_block_scales(const formats::Checkpoint& checkpoint,
                                             const model::Examination& examination, std::vector<LintFinding>& lint,
                                             std::int64_t budget = kScaleBudget);

}  // namespace sterling::lab
