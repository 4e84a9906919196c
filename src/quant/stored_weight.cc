#include "quant/stored_weight.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include <fmt/format.h>

#include "quant/decode.h"
#include "quant/float_codes.h"

namespace sterling::quant {
namespace {

std::int64_t blocks_of(std::int64_t extent, std::int64_t block) {
  return (extent + block - 1) / block;
}

Error fault(ErrorCode code, const TensorView& tensor, std::string_view problem) {
  return make_error(code, fmt::format("{}: tensor {} {}", tensor.file, tensor.name, problem), tensor.name);
}

bool four_bit(WeightFormat format) {
  return format == WeightFormat::kNvfp4 || format == WeightFormat::kMxfp4;
}

bool is_e8m0(DType dtype) {
  return dtype == DType::kU8 || dtype == DType::kF8E8M0;
}

Status require_shape(const TensorView& tensor, std::initializer_list<std::int64_t> shape, std::string_view why) {
  if (std::equal(shape.begin(), shape.end(), tensor.shape.begin(), tensor.shape.end())) return {};
  return fault(ErrorCode::kCorrupt, tensor,
               fmt::format("has shape {}, expected {}: {}", shape_text(tensor.shape),
                           shape_text({shape.begin(), shape.size()}), why));
}

// One positive finite value.
Status check_single(const TensorView& tensor) {
  if (!can_decode(tensor.dtype)) {
    return fault(ErrorCode::kUnsupported, tensor,
                 fmt::format("is a scale stored as {}; accepted: F32, F16, BF16", dtype_name(tensor.dtype)));
  }
  if (tensor.elements() != 1) {
    return fault(
        ErrorCode::kCorrupt, tensor,
        fmt::format("has shape {}, expected one value: the scale of the whole tensor", shape_text(tensor.shape)));
  }
  const auto value = decode(tensor);
  if (!value) return value.error();
  if (std::isfinite(value->front()) && value->front() > 0.0F) return {};
  return fault(ErrorCode::kCorrupt, tensor,
               fmt::format("holds the scale {}; scales are finite and greater than 0", value->front()));
}

Status check_codes_type(const StoredWeight& weight) {
  const TensorView& codes = weight.codes;
  if (codes.shape.size() != 2) {
    return fault(ErrorCode::kCorrupt, codes, fmt::format("has shape {}, expected a matrix", shape_text(codes.shape)));
  }
  const DType wanted = four_bit(weight.format) ? DType::kU8 : DType::kF8E4M3;
  if (codes.dtype == wanted) return {};
  return fault(ErrorCode::kUnsupported, codes,
               fmt::format("is stored as {}, expected {} for {}", dtype_name(codes.dtype), dtype_name(wanted),
                           weight_format_name(weight.format)));
}

Status check_scale_tensor(const StoredWeight& weight, const TensorView& scale) {
  const std::int64_t rows = weight.rows();
  const std::int64_t cols = weight.cols();
  if (const std::int64_t group = scale_group(weight.format); group > 0) {
    const bool nvfp4 = weight.format == WeightFormat::kNvfp4;
    if (nvfp4 ? scale.dtype != DType::kF8E4M3 : !is_e8m0(scale.dtype)) {
      return fault(ErrorCode::kUnsupported, scale,
                   fmt::format("is stored as {}; the scales of {} are {}", dtype_name(scale.dtype),
                               weight_format_name(weight.format), nvfp4 ? "F8_E4M3" : "E8M0 (U8 or F8_E8M0)"));
    }
    if (cols % group != 0) {
      return fault(
          ErrorCode::kUnsupported, weight.codes,
          fmt::format("has {} columns; {} needs a multiple of {}", cols, weight_format_name(weight.format), group));
    }
    return require_shape(scale, {rows, cols / group}, fmt::format("a scale for each {} elements of a row", group));
  }
  if (!can_decode(scale.dtype)) {
    return fault(ErrorCode::kUnsupported, scale,
                 fmt::format("is a scale stored as {}; accepted: F32, F16, BF16", dtype_name(scale.dtype)));
  }
  switch (weight.format) {
    case WeightFormat::kFp8Tensor: return check_single(scale);
    case WeightFormat::kFp8Channel:
      if (scale.elements() == rows) return {};
      return require_shape(scale, {rows}, "a scale for each output row");
    default: {
      const std::int64_t block_rows = blocks_of(rows, weight.block_rows);
      const std::int64_t block_cols = blocks_of(cols, weight.block_cols);
      // ModelOpt keeps the blocked axes apart: [row blocks, 1, column blocks, 1].
      if (scale.elements() == block_rows * block_cols && scale.shape.size() == 4) return {};
      return require_shape(scale, {block_rows, block_cols},
                           fmt::format("a scale for each block of {} x {} of {}", weight.block_rows, weight.block_cols,
                                       shape_text(weight.codes.shape)));
    }
  }
}

Expected<std::vector<float>> scale_values(const TensorView& scale) {
  auto values = decode(scale);
  if (!values) return values.error();
  for (std::size_t i = 0; i < values->size(); ++i) {
    if (std::isfinite((*values)[i]) && (*values)[i] >= 0.0F) continue;
    return fault(ErrorCode::kCorrupt, scale,
                 fmt::format("holds the scale {} at element {}; scales are finite and not negative", (*values)[i], i));
  }
  return values;
}

double global_multiplier(const StoredWeight& weight) {
  if (!weight.global_scale) return 1.0;
  const auto value = decode(*weight.global_scale);
  if (!value || value->empty()) return 1.0;
  return weight.divide_by_global ? 1.0 / double{value->front()} : double{value->front()};
}

std::uint8_t byte_at(const TensorView& tensor, std::int64_t index) {
  return std::to_integer<std::uint8_t>(tensor.data[static_cast<std::size_t>(index)]);
}

// One row of codes as values, unscaled.
void decode_codes(const StoredWeight& weight, std::int64_t row, double* out) {
  const std::int64_t cols = weight.cols();
  if (four_bit(weight.format)) {
    for (std::int64_t c = 0; c < cols; ++c) {
      const std::uint8_t byte = byte_at(weight.codes, row * (cols / 2) + c / 2);
      out[c] = double{e2m1_to_float(static_cast<std::uint8_t>(c % 2 == 0 ? byte & 15u : byte >> 4u))};
    }
    return;
  }
  for (std::int64_t c = 0; c < cols; ++c) out[c] = double{e4m3_table()[byte_at(weight.codes, row * cols + c)]};
}

}  // namespace

std::string_view weight_format_name(WeightFormat format) {
  switch (format) {
    case WeightFormat::kPlain: return "plain";
    case WeightFormat::kFp8Tensor: return "fp8_e4m3_tensor";
    case WeightFormat::kFp8Channel: return "fp8_e4m3_channel";
    case WeightFormat::kFp8Block: return "fp8_e4m3_block";
    case WeightFormat::kNvfp4: return "nvfp4";
    case WeightFormat::kMxfp4: return "mxfp4";
    case WeightFormat::kMxfp8: return "mxfp8";
  }
  return "plain";
}

std::int64_t scale_group(WeightFormat format) {
  if (format == WeightFormat::kNvfp4) return 16;
  return format == WeightFormat::kMxfp4 || format == WeightFormat::kMxfp8 ? 32 : 0;
}

std::int64_t StoredWeight::rows() const {
  return codes.shape.empty() ? 1 : codes.shape.front();
}

std::int64_t StoredWeight::cols() const {
  const std::int64_t stored = codes.shape.size() < 2 ? codes.elements() : codes.shape.back();
  return four_bit(format) ? stored * 2 : stored;
}

std::int64_t StoredWeight::stored_bytes() const {
  std::size_t bytes = codes.data.size();
  if (scale) bytes += scale->data.size();
  if (global_scale) bytes += global_scale->data.size();
  return static_cast<std::int64_t>(bytes);
}

StoredWeight plain_weight(const TensorView& weight) {
  StoredWeight stored;
  stored.codes = weight;
  return stored;
}

Status check(const StoredWeight& weight) {
  if (weight.format == WeightFormat::kPlain) {
    if (can_decode(weight.codes.dtype)) return {};
    return fault(ErrorCode::kUnsupported, weight.codes,
                 fmt::format("is stored as {} without scales; accepted so: F32, F16, BF16 and GGUF block types",
                             dtype_name(weight.codes.dtype)));
  }
  if (Status status = check_codes_type(weight); !status) return status;
  if (!weight.scale) {
    return fault(ErrorCode::kCorrupt, weight.codes,
                 fmt::format("is {} without its scales", weight_format_name(weight.format)));
  }
  if (Status status = check_scale_tensor(weight, *weight.scale); !status) return status;
  if (weight.format != WeightFormat::kNvfp4) return {};
  if (!weight.global_scale) {
    return fault(ErrorCode::kCorrupt, weight.codes,
                 "is NVFP4 without its global scale (weight_scale_2 or weight_global_scale)");
  }
  return check_single(*weight.global_scale);
}

Expected<WeightScales> read_scales(const StoredWeight& weight) {
  WeightScales scales;
  switch (weight.format) {
    case WeightFormat::kFp8Tensor:
    case WeightFormat::kFp8Channel: {
      auto values = scale_values(*weight.scale);
      if (!values) return values.error();
      scales.row = std::move(*values);
      break;
    }
    case WeightFormat::kFp8Block: {
      auto values = scale_values(*weight.scale);
      if (!values) return values.error();
      scales.block = std::move(*values);
      break;
    }
    case WeightFormat::kNvfp4: scales.row = {static_cast<float>(global_multiplier(weight))}; break;
    default: break;
  }
  return scales;
}

Status check_group_scales(const StoredWeight& weight, std::int64_t begin, std::int64_t end) {
  const std::int64_t group = scale_group(weight.format);
  if (group == 0) return {};
  const std::int64_t per_row = weight.cols() / group;
  const bool nvfp4 = weight.format == WeightFormat::kNvfp4;
  for (std::int64_t i = begin * per_row; i < end * per_row; ++i) {
    const std::uint8_t code = byte_at(*weight.scale, i);
    // E4M3: 0x7f is NaN, the sign bit makes a scale negative (0x80, minus zero, is a zero). E8M0: 0xff is NaN.
    const bool bad = nvfp4 ? code == 0x7f || code > 0x80 : code == 0xff;
    if (!bad) continue;
    return fault(
        ErrorCode::kCorrupt, *weight.scale,
        fmt::format("holds the scale code {:#04x} at [{}, {}], which is {}; scales are finite and not negative", code,
                    i / per_row, i % per_row, !nvfp4 || (code & 0x7fu) == 0x7fu ? "NaN" : "negative"));
  }
  return {};
}

Status check_codes(const StoredWeight& weight, std::int64_t begin, std::int64_t end) {
  if (weight.format == WeightFormat::kPlain || four_bit(weight.format)) return {};
  const std::int64_t cols = weight.cols();
  for (std::int64_t i = begin * cols; i < end * cols; ++i) {
    if ((byte_at(weight.codes, i) & 0x7fu) != 0x7fu) continue;
    return fault(ErrorCode::kCorrupt, weight.codes,
                 fmt::format("holds NaN at [{}, {}]; weights must be finite", i / cols, i % cols));
  }
  return {};
}

Expected<RowDecoder> RowDecoder::make(const StoredWeight& weight) {
  RowDecoder decoder(weight);
  auto scales = read_scales(weight);
  if (!scales) return scales.error();
  decoder.scales_ = std::move(*scales);
  decoder.global_ = global_multiplier(weight);
  return decoder;
}

double RowDecoder::scale_of(std::int64_t row, std::int64_t column) const {
  const StoredWeight& weight = *weight_;
  switch (weight.format) {
    case WeightFormat::kFp8Tensor: return double{scales_.row.front()};
    case WeightFormat::kFp8Channel: return double{scales_.row[static_cast<std::size_t>(row)]};
    case WeightFormat::kFp8Block: {
      const std::int64_t blocks = blocks_of(weight.cols(), weight.block_cols);
      const std::int64_t index = row / weight.block_rows * blocks + column / weight.block_cols;
      return double{scales_.block[static_cast<std::size_t>(index)]};
    }
    default: break;
  }
  const std::int64_t group = scale_group(weight.format);
  const std::uint8_t code = byte_at(*weight.scale, row * (weight.cols() / group) + column / group);
  return double{weight.format == WeightFormat::kNvfp4 ? e4m3_to_float(code) : e8m0_to_float(code)} * global_;
}

Status RowDecoder::decode(std::int64_t begin, std::int64_t end, float* out) const {
  const StoredWeight& weight = *weight_;
  if (weight.format == WeightFormat::kPlain) return decode_rows(weight.codes, begin, end, out);
  if (begin < 0 || end < begin || end > weight.rows()) {
    return fault(ErrorCode::kInvalidArgument, weight.codes, fmt::format("has no rows [{}, {})", begin, end));
  }
  const std::int64_t cols = weight.cols();
  // Columns that share a scale.
  const std::int64_t group = scale_group(weight.format);
  const std::int64_t run = group > 0 ? group : weight.format == WeightFormat::kFp8Block ? weight.block_cols : cols;
  std::vector<double> values(static_cast<std::size_t>(cols));
  for (std::int64_t row = begin; row < end; ++row, out += cols) {
    decode_codes(weight, row, values.data());
    for (std::int64_t first = 0; first < cols; first += run) {
      const double scale = scale_of(row, first);
      for (std::int64_t c = first; c < std::min(cols, first + run); ++c) {
        out[c] = static_cast<float>(values[static_cast<std::size_t>(c)] * scale);
      }
    }
  }
  return {};
}

Status decode_rows(const StoredWeight& weight, std::int64_t begin, std::int64_t end, float* out) {
  auto decoder = RowDecoder::make(weight);
  if (!decoder) return decoder.error();
  return decoder->decode(begin, end, out);
}

}  // namespace sterling::quant
