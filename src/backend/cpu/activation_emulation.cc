// Products whose inputs are rounded first, as engines with quantised activations do. Only `sterling audit` turns it on.
#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "backend/cpu/cpu_backend_impl.h"
#include "quant/decode.h"
#include "quant/encode.h"

namespace sterling::backend {
namespace {

using quant::ActivationFormat;

// A calibrated scale means what its format divides by: NVFP4's is 448 times smaller than FP8's.
bool calibrated_for(const quant::StoredWeight& weight, ActivationFormat format) {
  if (!weight.input_scale) return false;
  if (format == ActivationFormat::kNvfp4) return weight.format == quant::WeightFormat::kNvfp4;
  return format == ActivationFormat::kFp8Tensor &&
         (weight.format == quant::WeightFormat::kFp8Tensor || weight.format == quant::WeightFormat::kFp8Channel);
}

std::span<float> row_of(Matrix x, std::int64_t row) {
  return {x.data + row * x.ld, static_cast<std::size_t>(x.cols)};
}

}  // namespace

Status CpuBackend::prepare_emulation(const quant::StoredWeight& weight, PackedLinear& linear) const {
  linear.rounds_input = true;
  if (!calibrated_for(weight, options_.activations->format)) return {};
  const TensorView& tensor = *weight.input_scale;
  if (tensor.elements() != 1) {
    return make_error(ErrorCode::kUnsupported,
                      fmt::format("{}: tensor {} has {} elements; accepted to emulate activations: one", tensor.file,
                                  tensor.name, tensor.elements()),
                      tensor.name);
  }
  const auto values = quant::decode(tensor);
  if (!values) return values.error();
  const float value = weight.divide_by_input ? 1.0F / values->front() : values->front();
  if (!std::isfinite(value) || value <= 0.0F) {
    return make_error(ErrorCode::kCorrupt,
                      fmt::format("{}: tensor {} holds {}; scales are finite and greater than 0", tensor.file,
                                  tensor.name, values->front()),
                      tensor.name);
  }
  linear.input_scale = value;
  return {};
}

// 0: each row finds its own.
float CpuBackend::emulated_scale(Matrix x, float calibrated) {
  if (options_.activations->format != ActivationFormat::kFp8Tensor || calibrated > 0.0F) return calibrated;
  float largest = 0.0F;
  for (std::int64_t row = 0; row < x.rows; ++row) {
    const float of_row = quant::largest_magnitude(row_of(x, row));
    if (std::isfinite(of_row)) largest = std::max(largest, of_row);
  }
  return quant::fp8_scale(largest);
}

void CpuBackend::round_rows(Matrix x, float scale) const {
  for (std::int64_t row = 0; row < x.rows; ++row) {
    const std::span<float> values = row_of(x, row);
    if (options_.activations->format == ActivationFormat::kNvfp4) {
      quant::round_nvfp4(values, scale > 0.0F ? scale : quant::nvfp4_row_scale(values));
      continue;
    }
    const float own = scale > 0.0F ? scale : quant::fp8_scale(quant::largest_magnitude(values));
    if (std::isfinite(own)) quant::round_fp8(values, own);
  }
}

void CpuBackend::multiply_rounded(Matrix x, std::span<const LinearId> weights, std::span<const Matrix> outs, bool add) {
  if (x.rows == 0) return;
  std::vector<LinearId> ids[2];  // as they are, rounded
  std::vector<Matrix> targets[2];
  float calibrated = 0.0F;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const PackedLinear& linear = linears_[static_cast<std::size_t>(weights[i].index)];
    ids[linear.rounds_input ? 1 : 0].push_back(weights[i]);
    targets[linear.rounds_input ? 1 : 0].push_back(outs[i]);
    if (linear.rounds_input) calibrated = std::max(calibrated, linear.input_scale);
  }
  Matrix rounded{nullptr, x.rows, x.cols, x.cols};
  if (!ids[1].empty()) {
    rounded_.resize(static_cast<std::size_t>(x.rows * x.cols));
    rounded.data = rounded_.data();
    const float scale = emulated_scale(x, calibrated);
    parallel_rows(x.rows, x.cols, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        std::memcpy(rounded.data + row * rounded.ld, x.data + row * x.ld,
                    static_cast<std::size_t>(x.cols) * sizeof(float));
      }
      round_rows({rounded.data + begin * rounded.ld, end - begin, rounded.cols, rounded.ld}, scale);
    });
  }
  if (!ids[0].empty()) multiply(x, ids[0], targets[0], add);
  if (!ids[1].empty()) multiply(rounded, ids[1], targets[1], add);
}

Matrix CpuBackend::round_expert_input(const MoeArgs& args, const ExpertChunk& chunk, Matrix rows,
                                      const MoeScratch& scratch) const {
  const PackedLinear& gate = linears_[static_cast<std::size_t>(args.gate.index + chunk.expert)];
  const PackedLinear& up = linears_[static_cast<std::size_t>(args.up.index + chunk.expert)];
  const Matrix copy{scratch.gathered, rows.rows, rows.cols, rows.cols};
  if (rows.data != copy.data) {
    for (std::int64_t row = 0; row < rows.rows; ++row) {
      std::memcpy(copy.data + row * copy.ld, rows.data + row * rows.ld,
                  static_cast<std::size_t>(rows.cols) * sizeof(float));
    }
  }
  const float calibrated = std::max(gate.input_scale, up.input_scale);
  round_rows(copy, calibrated > 0.0F ? calibrated : experts_input_scale_);
  return copy;
}

// In place and once: every task of the down projection packs the same rows.
void CpuBackend::round_expert_hidden(const MoeArgs& args, std::int64_t pairs) {
  const std::int64_t width = linears_[static_cast<std::size_t>(args.down.index)].k;
  const Matrix all{expert_hidden_.as<float>().data(), pairs, width, width};
  const float of_step = emulated_scale(all, 0.0F);
  pool_.parallel(chunks_.size(), [&](std::size_t task, std::size_t) {
    const ExpertChunk& chunk = chunks_[task];
    const PackedLinear& down = linears_[static_cast<std::size_t>(args.down.index + chunk.expert)];
    if (!down.rounds_input) return;
    round_rows({all.data + chunk.begin * width, chunk.end - chunk.begin, width, width},
               down.input_scale > 0.0F ? down.input_scale : of_step);
  });
}

}  // namespace sterling::backend
