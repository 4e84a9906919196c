// What weights become in memory: the one place that says so, for loading and for plans.
#include <memory>

#include "backend/cpu/cpu_backend_impl.h"
#include "kernels/panels.h"

namespace sterling::backend {
namespace {

std::int64_t padded(std::int64_t bytes) {
  return static_cast<std::int64_t>(platform::AlignedBuffer::padded_bytes(static_cast<std::size_t>(bytes)));
}

// Coded weights that multiply a finished sum: by the scale of the tensor, of the row, or NVFP4's global one.
bool has_row_scale(const PackedLinear& linear) {
  return linear.type == PanelType::kCoded &&
         (linear.code == kernels::CodeFormat::kFp8 || linear.code == kernels::CodeFormat::kNvfp4);
}

class CpuWeightSizes final : public WeightSizes {
 public:
  explicit CpuWeightSizes(Compute compute) : compute_(compute) {}

  std::int64_t linears(std::span<const quant::StoredWeight> weights, const RowSelection& rows,
                       ProductInput input) const override {
    std::int64_t panels = 0;
    std::int64_t scales = 0;
    for (const quant::StoredWeight& weight : weights) {
      const PackedLinear linear = describe(compute_, weight, rows, input);
      panels += linear.panels_bytes();
      if (has_row_scale(linear)) scales += vector(linear.n);
    }
    return padded(panels) + scales;
  }

  std::int64_t vector(std::int64_t elements) const override {
    return elements * static_cast<std::int64_t>(sizeof(float));
  }

  std::int64_t embedding(const TensorView& table) const override {
    const Embedding embedding = describe(table);
    return padded(embedding.n * embedding.row_bytes());
  }

 private:
  Compute compute_;
};

}  // namespace

PackedLinear describe(Compute compute, const quant::StoredWeight& weight, const RowSelection& rows,
                      ProductInput input) {
  PackedLinear linear;
  linear.k = weight.cols();
  linear.n = rows.period == 0 ? weight.rows() : weight.rows() / rows.period * (rows.end - rows.begin);
  const bool rounded = compute == Compute::kBf16 && input == ProductInput::kActivation;
  const bool as_stored = weight.format == quant::WeightFormat::kPlain && weight.codes.dtype == DType::kBF16 &&
                         weight.codes.interleaved_rope_heads == 0;
  linear.type = rounded && as_stored ? PanelType::kBf16 : PanelType::kFp32;
  if (const auto code = code_format_of(weight); rounded && code) {
    linear.type = PanelType::kCoded;
    linear.input = InputForm::kBf16;
    linear.code = *code;
    linear.panel_bytes = static_cast<std::int64_t>(kernels::panel_bytes_coded(*code, linear.k));
    return linear;
  }
  linear.input = linear.type == PanelType::kBf16 ? InputForm::kBf16
                 : rounded                       ? InputForm::kFp32RoundedToBf16
                                                 : InputForm::kFp32;
  const std::int64_t pairs = (linear.k + 1) / 2;
  linear.panel_bytes = pairs * kernels::kLanes * 2 * (linear.type == PanelType::kBf16 ? 2 : 4);
  return linear;
}

Embedding describe(const TensorView& table) {
  Embedding embedding;
  embedding.n = table.shape[0];
  embedding.k = table.shape[1];
  embedding.dtype = table.dtype == DType::kBF16 ? DType::kBF16 : DType::kF32;
  return embedding;
}

std::unique_ptr<WeightSizes> cpu_weight_sizes(Compute compute) {
  return std::make_unique<CpuWeightSizes>(compute);
}

}  // namespace sterling::backend
