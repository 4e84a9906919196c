#include "quant/round_activations.h"

#include <algorithm>
#include <cmath>

#include "quant/encode.h"
#include "quant/float_codes.h"

namespace sterling::quant {

std::string_view activation_format_name(ActivationFormat format) {
  switch (format) {
    case ActivationFormat::kFp8Tensor: return "fp8_tensor";
    case ActivationFormat::kFp8Token: return "fp8_token";
    case ActivationFormat::kNvfp4: return "nvfp4";
  }
  return "";
}

std::optional<ActivationFormat> activation_format_from_name(std::string_view name) {
  for (const ActivationFormat format :
       {ActivationFormat::kFp8Tensor, ActivationFormat::kFp8Token, ActivationFormat::kNvfp4}) {
    if (activation_format_name(format) == name) return format;
  }
  return std::nullopt;
}

void round_fp8(std::span<float> x, float scale) {
  for (float& value : x) {
    if (std::isfinite(value)) value = e4m3_to_float(float_to_e4m3(value / scale)) * scale;
  }
}

void round_nvfp4(std::span<float> row, float input_scale) {
  if (!std::isfinite(largest_magnitude(row))) return;
  constexpr auto kGroup = static_cast<std::size_t>(kNvfp4Group);
  for (std::size_t begin = 0; begin < row.size(); begin += kGroup) {
    const std::span<float> block = row.subspan(begin, std::min(kGroup, row.size() - begin));
    const float quotient = largest_magnitude(block) / (kE2m1Max * input_scale);
    const float scale = e4m3_to_float(float_to_e4m3(quotient)) * input_scale;
    for (float& value : block) value = scale == 0.0F ? 0.0F : e2m1_to_float(float_to_e2m1(value / scale)) * scale;
  }
}

float nvfp4_row_scale(std::span<const float> row) {
  return nvfp4_global_scale(largest_magnitude(row));
}

}  // namespace sterling::quant
