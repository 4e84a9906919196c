// Weights that stay codes: which panel format a stored weight takes, packing it, and reading rows back.
#include <algorithm>
#include <cstring>
#include <mutex>

#include "backend/cpu/cpu_backend_impl.h"
#include "kernels/panels.h"
#include "quant/float_codes.h"

namespace sterling::backend {

std::optional<kernels::CodeFormat> code_format_of(const quant::StoredWeight& weight) {
  using kernels::CodeFormat;
  if (weight.codes.interleaved_rope_heads != 0) return std::nullopt;
  switch (weight.format) {
    case quant::WeightFormat::kPlain: return std::nullopt;
    case quant::WeightFormat::kFp8Tensor:
    case quant::WeightFormat::kFp8Channel: return CodeFormat::kFp8;
    case quant::WeightFormat::kFp8Block:
      // Wider blocks repeat their scale; others (none published) are decoded.
      if (weight.block_cols % kernels::code_group(CodeFormat::kFp8Block) != 0) return std::nullopt;
      return CodeFormat::kFp8Block;
    case quant::WeightFormat::kNvfp4: return CodeFormat::kNvfp4;
    case quant::WeightFormat::kMxfp4: return CodeFormat::kMxfp4;
    case quant::WeightFormat::kMxfp8: return CodeFormat::kMxfp8;
  }
  return std::nullopt;
}

Status CpuBackend::store_codes(const quant::StoredWeight& stored, const RowSelection& rows, PackedLinear& linear) {
  auto scales = quant::read_scales(stored);
  if (!scales) return scales.error();
  const auto n = static_cast<std::size_t>(linear.n);
  if (!scales->row.empty()) {
    linear.row_scale.resize(n);
    for (std::size_t row = 0; row < n; ++row) {
      const auto from = static_cast<std::size_t>(source_row(rows, static_cast<std::int64_t>(row)));
      linear.row_scale[row] = scales->row[scales->row.size() == 1 ? 0 : from];
    }
    footprint_.bytes += static_cast<std::int64_t>(n * sizeof(float));
  }
  const std::int64_t code_bytes = kernels::is_four_bit(linear.code) ? linear.k / 2 : linear.k;
  const int group = kernels::code_group(linear.code);
  const std::int64_t groups = group == 0 ? 0 : (linear.k + group - 1) / group;
  const bool block = linear.code == kernels::CodeFormat::kFp8Block;
  const std::int64_t blocks = block ? (linear.k + stored.block_cols - 1) / stored.block_cols : 0;
  std::mutex mutex;
  Status fault;
  pool_.parallel(static_cast<std::size_t>(linear.panel_count()), [&](std::size_t panel, std::size_t) {
    const std::int64_t begin = static_cast<std::int64_t>(panel) * kernels::kLanes;
    const auto count = static_cast<int>(std::min<std::int64_t>(kernels::kLanes, linear.n - begin));
    const std::uint8_t* codes[kernels::kLanes] = {};
    const std::byte* group_scales[kernels::kLanes] = {};
    std::vector<float> block_scales(block ? static_cast<std::size_t>(kernels::kLanes * groups) : 0);
    for (int lane = 0; lane < count; ++lane) {
      const std::int64_t row = source_row(rows, begin + lane);
      Status status = quant::check_group_scales(stored, row, row + 1);
      if (status) status = quant::check_codes(stored, row, row + 1);
      if (!status) {
        const std::lock_guard lock(mutex);
        if (fault) fault = status;
      }
      codes[lane] = reinterpret_cast<const std::uint8_t*>(stored.codes.data.data()) + row * code_bytes;
      if (block) {
        float* const to = block_scales.data() + lane * groups;
        const float* const from = scales->block.data() + row / stored.block_rows * blocks;
        for (std::int64_t g = 0; g < groups; ++g) to[g] = from[g * group / stored.block_cols];
        group_scales[lane] = reinterpret_cast<const std::byte*>(to);
      } else if (group != 0) {
        group_scales[lane] = stored.scale->data.data() + row * groups;
      }
    }
    kernels::pack_panel_coded(linear.code, codes, group_scales, count, static_cast<int>(linear.k),
                              linear.panels.data() + static_cast<std::int64_t>(panel) * linear.panel_bytes);
  });
  return fault;
}

void decode_coded_row(const PackedLinear& linear, std::int64_t row, float* out) {
  const int group = kernels::code_group(linear.code);
  const std::size_t scale_bytes = kernels::code_scale_bytes(linear.code);
  const auto k = static_cast<std::size_t>(linear.k);
  const std::size_t groups =
      group == 0 ? 0 : (k + static_cast<std::size_t>(group) - 1) / static_cast<std::size_t>(group);
  const bool four_bit = kernels::is_four_bit(linear.code);
  std::vector<std::uint8_t> codes(four_bit ? (k + 1) / 2 : k);
  std::vector<std::byte> scales(groups * scale_bytes);
  kernels::unpack_panel_row_coded(linear.code, linear.panels.data() + row / kernels::kLanes * linear.panel_bytes,
                                  static_cast<int>(row % kernels::kLanes), static_cast<int>(linear.k), codes.data(),
                                  scales.data());
  const double row_scale = linear.row_scale.empty() ? 1.0 : double{linear.row_scale[static_cast<std::size_t>(row)]};
  double scale = row_scale;
  for (std::size_t i = 0; i < k; ++i) {
    if (group != 0 && i % static_cast<std::size_t>(group) == 0) {
      const std::byte* const at = scales.data() + i / static_cast<std::size_t>(group) * scale_bytes;
      float value = 0.0F;
      if (linear.code == kernels::CodeFormat::kFp8Block) {
        std::memcpy(&value, at, sizeof value);
      } else {
        const auto code = std::to_integer<std::uint8_t>(*at);
        value = linear.code == kernels::CodeFormat::kNvfp4 ? quant::e4m3_to_float(code) : quant::e8m0_to_float(code);
      }
      scale = double{value} * row_scale;
    }
    const float code = four_bit ? quant::e2m1_to_float(static_cast<std::uint8_t>(codes[i / 2] >> (i % 2 * 4)))
                                : quant::e4m3_to_float(codes[i]);
    out[i] = static_cast<float>(double{code} * scale);
  }
}

}  // namespace sterling::backend
