#include "proof/weight_check.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "quant/stored_weight.h"

namespace sterling::proof {
namespace {

constexpr std::int64_t kRows = 16;
constexpr std::int64_t kCols = 32;

std::int64_t selected_rows(const backend::RowSelection& rows, std::int64_t stored) {
  return rows.period == 0 ? stored : stored / rows.period * (rows.end - rows.begin);
}

std::int64_t stored_row(const backend::RowSelection& rows, std::int64_t row) {
  if (rows.period == 0) return row;
  const std::int64_t taken = rows.end - rows.begin;
  return row / taken * rows.period + rows.begin + row % taken;
}

// NVFP4's block scale and global scale multiply in turn, other formats' values are formed with one rounding or none.
double allowed(quant::WeightFormat format) {
  return format == quant::WeightFormat::kPlain || format == quant::WeightFormat::kMxfp4 ||
                 format == quant::WeightFormat::kMxfp8
             ? 0.0
             : 0x1p-23;
}

}  // namespace

WeightFault check_weight(const backend::Backend& backend, const model::WeightBinder::Placed& placed) {
  WeightFault result;
  const quant::StoredWeight& weight = placed.weight;
  const auto decoder = quant::RowDecoder::make(weight);
  if (!decoder) return {decoder.error().message, 0};
  const std::int64_t cols = weight.cols();
  const std::int64_t rows = selected_rows(placed.rows, weight.rows());
  std::vector<float> file(static_cast<std::size_t>(cols));
  for (const bool last : {false, true}) {
    const std::int64_t row_begin = last ? std::max<std::int64_t>(0, rows - kRows) : 0;
    const std::int64_t col_begin = last ? std::max<std::int64_t>(0, cols - kCols) : 0;
    const std::int64_t row_count = std::min(kRows, rows);
    const std::int64_t col_count = std::min(kCols, cols);
    const auto held = backend.read_linear(placed.id, row_begin, row_count, col_begin, col_count);
    for (std::int64_t r = 0; r < row_count; ++r) {
      const std::int64_t source = stored_row(placed.rows, row_begin + r);
      if (Status status = decoder.value().decode(source, source + 1, file.data()); !status) {
        return {status.error().message, result.compared};
      }
      for (std::int64_t c = 0; c < col_count; ++c) {
        const float expected = file[static_cast<std::size_t>(col_begin + c)];
        const float found = held[static_cast<std::size_t>(r * col_count + c)];
        ++result.compared;
        if (std::fabs(static_cast<double>(found) - static_cast<double>(expected)) <=
            allowed(weight.format) * std::fabs(static_cast<double>(expected))) {
          continue;
        }
        result.what =
            fmt::format("{} ({}), row {}, column {}: the file has {:.9g}, the packed weight {:.9g}", weight.codes.name,
                        quant::weight_format_name(weight.format), source, col_begin + c, expected, found);
        return result;
      }
    }
  }
  return result;
}

}  // namespace sterling::proof
