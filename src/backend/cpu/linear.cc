// Matrix products: inputs packed once, output columns shared out among the threads.
#include <algorithm>

#include "backend/cpu/cpu_backend_impl.h"
#include "base/check.h"

namespace sterling::backend {
namespace {

constexpr std::size_t kMaxWeights = 8;  // products that share one input: q, gate, k, v at most, with room

}  // namespace

std::size_t CpuBackend::packed_bytes(InputForm form, std::int64_t rows, std::int64_t k) const {
  return packed_input_bytes(kernels_, form, rows, k);
}

void CpuBackend::pack_rows(InputForm form, Matrix x, int row_begin, int row_end, void* packed) const {
  const auto m = static_cast<int>(x.rows);
  const auto k = static_cast<int>(x.cols);
  const auto ld = static_cast<std::size_t>(x.ld);
  if (form == InputForm::kBf16) {
    kernels_.pack_x_bf16(x.data, ld, m, k, row_begin, row_end, packed);
  } else {
    kernels_.pack_x_f32(x.data, ld, m, k, row_begin, row_end, form == InputForm::kFp32RoundedToBf16, packed);
  }
}

const void* CpuBackend::pack_input(Matrix x, InputForm form) {
  platform::AlignedBuffer& packed = packed_[static_cast<std::size_t>(form)];
  STERLING_CHECK(packed_bytes(form, x.rows, x.cols) <= packed.size());
  const std::int64_t tile = kernels_.row_tile;
  parallel_rows((x.rows + tile - 1) / tile, x.cols * tile, [&](std::int64_t begin, std::int64_t end) {
    const auto row_begin = static_cast<int>(begin * tile);
    const auto row_end = static_cast<int>(std::min<std::int64_t>(end * tile, x.rows));
    pack_rows(form, x, row_begin, row_end, packed.data());
  });
  return packed.data();
}

void CpuBackend::run_gemm(const PackedLinear& w, kernels::GemmArgs args) const {
  args.w = w.panels.data();
  args.k = static_cast<int>(w.k);
  args.n = static_cast<int>(w.n);
  args.row_scale = w.row_scale.empty() ? nullptr : w.row_scale.data();
  args.bias = w.bias.empty() ? nullptr : w.bias.data();
  switch (w.type) {
    case PanelType::kBf16: kernels_.gemm_bf16(&args); break;
    case PanelType::kFp32:
      w.input == InputForm::kFp32 ? kernels_.gemm_f32_wide(&args) : kernels_.gemm_f32(&args);
      break;
    case PanelType::kCoded: kernels_.gemm_coded[static_cast<std::size_t>(w.code)](&args); break;
  }
}

void CpuBackend::linear(Matrix x, std::span<const LinearId> weights, std::span<const Matrix> outs, bool add) {
  options_.activations ? multiply_rounded(x, weights, outs, add) : multiply(x, weights, outs, add);
}

void CpuBackend::multiply(Matrix x, std::span<const LinearId> weights, std::span<const Matrix> outs, bool add) {
  STERLING_CHECK(weights.size() == outs.size() && weights.size() <= kMaxWeights);
  if (x.rows == 0) return;
  const void* packed[kInputForms] = {};
  std::int64_t panels = 0;
  for (const LinearId id : weights) {
    const PackedLinear& w = linears_[static_cast<std::size_t>(id.index)];
    STERLING_CHECK(w.k == x.cols);
    const void*& input = packed[static_cast<std::size_t>(w.input)];
    if (input == nullptr) input = pack_input(x, w.input);
    panels += w.panel_count();
  }
  // Few panels per task balance the threads, many keep the kernels' inner loops long; eight is what a one-row product interleaves.
  const auto threads = static_cast<std::int64_t>(pool_.threads());
  const std::int64_t group = std::clamp<std::int64_t>(panels / (threads * 8), 4, 16);
  // With few output columns for many threads, rows are split too.
  const std::int64_t column_tasks = (panels + group - 1) / group;
  const std::int64_t tile = kernels_.row_tile;
  const std::int64_t tiles = (x.rows + tile - 1) / tile;
  const std::int64_t row_splits = std::clamp<std::int64_t>((threads * 4 + column_tasks - 1) / column_tasks, 1,
                                                           std::max<std::int64_t>(1, tiles / 4));
  const std::int64_t tiles_per_split = (tiles + row_splits - 1) / row_splits;

  std::int64_t first_task[kMaxWeights + 1] = {0};
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const std::int64_t count = linears_[static_cast<std::size_t>(weights[i].index)].panel_count();
    first_task[i + 1] = first_task[i] + (count + group - 1) / group * row_splits;
  }
  pool_.parallel(static_cast<std::size_t>(first_task[weights.size()]), [&](std::size_t index, std::size_t) {
    std::size_t i = 0;
    while (static_cast<std::int64_t>(index) >= first_task[i + 1]) ++i;
    const std::int64_t local = static_cast<std::int64_t>(index) - first_task[i];
    const std::int64_t split = local % row_splits;
    const std::int64_t column = local / row_splits;
    const PackedLinear& w = linears_[static_cast<std::size_t>(weights[i].index)];
    kernels::GemmArgs args{};
    args.x = packed[static_cast<std::size_t>(w.input)];
    args.out = outs[i].data;
    args.ldo = static_cast<std::size_t>(outs[i].ld);
    args.m = static_cast<int>(x.rows);
    args.row_begin = static_cast<int>(std::min(x.rows, split * tiles_per_split * tile));
    args.row_end = static_cast<int>(std::min(x.rows, (split + 1) * tiles_per_split * tile));
    args.panel_begin = static_cast<int>(column * group);
    args.panel_end = static_cast<int>(std::min(w.panel_count(), (column + 1) * group));
    args.add = add;
    if (args.row_begin < args.row_end) run_gemm(w, args);
  });
}

void CpuBackend::logits(Matrix x, LinearId weight, std::span<float> out) {
  const std::int64_t n = linears_[static_cast<std::size_t>(weight.index)].n;
  STERLING_CHECK(static_cast<std::int64_t>(out.size()) == x.rows * n);
  const Matrix target{out.data(), x.rows, n, n};
  multiply(x, std::span(&weight, 1), std::span(&target, 1), false);
}

}  // namespace sterling::backend
