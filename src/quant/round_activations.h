// What an engine with quantised activations multiplies: FP32 rows rounded to a code and back. The run-time side of W8A8 and W4A4, in FP32 operations
// one by one; fused kernels that divide by an approximate reciprocal may differ in the last code.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace sterling::quant {

// kFp8Tensor: E4M3, one scale for all rows of a step (calibrated where the checkpoint has one, else largest / 448); kFp8Token: E4M3, a scale per row,
// largest / 448; kNvfp4: E2M1 with an E4M3 scale per 16 elements under one calibrated FP32 scale.
enum class ActivationFormat { kFp8Tensor, kFp8Token, kNvfp4 };

// "fp8_tensor", "fp8_token", "nvfp4"
std::string_view activation_format_name(ActivationFormat format);
std::optional<ActivationFormat> activation_format_from_name(std::string_view name);

// x = e4m3(x / scale) * scale, saturating. `scale` is finite and greater than 0.
void round_fp8(std::span<float> x, float scale);

// In blocks of 16 from the start of `row` (the last may be shorter): s = e4m3(largest of the block / (6 * input_scale)), saturating;
// x = e2m1(x / (s * input_scale)) * s * input_scale. A block whose s is 0 becomes zeros. Rows with NaN or infinity are left as they are.
void round_nvfp4(std::span<float> row, float input_scale);

// The scale for kNvfp4 where no calibrated one is there: largest / (6 * 448), 1 for zeros. Per row: kinder than calibration, nothing saturates.
float nvfp4_row_scale(std::span<const float> row);

}  // namespace sterling::quant
