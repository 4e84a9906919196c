// Weights as the kernels multiply them, for the proof.
#include <algorithm>

#include "backend/cpu/cpu_backend_impl.h"
#include "base/check.h"

namespace sterling::backend {

std::vector<float> CpuBackend::read_linear(LinearId id, std::int64_t row_begin, std::int64_t rows,
                                           std::int64_t col_begin, std::int64_t cols) const {
  const PackedLinear& w = linears_[static_cast<std::size_t>(id.index)];
  STERLING_CHECK(row_begin >= 0 && row_begin + rows <= w.n && col_begin >= 0 && col_begin + cols <= w.k);
  std::vector<float> inputs(static_cast<std::size_t>(cols * w.k), 0.0F);
  for (std::int64_t c = 0; c < cols; ++c) inputs[static_cast<std::size_t>(c * w.k + col_begin + c)] = 1.0F;
  const auto packed = platform::AlignedBuffer::allocate(packed_bytes(w.input, cols, w.k), "one-hot inputs");
  STERLING_CHECK(packed.ok());
  std::vector<float> products(static_cast<std::size_t>(cols * w.n));
  kernels::GemmArgs args{};
  args.x = packed->data();
  args.out = products.data();
  args.ldo = static_cast<std::size_t>(w.n);
  args.m = static_cast<int>(cols);
  args.row_begin = 0;
  args.row_end = args.m;
  args.panel_begin = static_cast<int>(row_begin / kernels::kLanes);
  args.panel_end = static_cast<int>((row_begin + rows + kernels::kLanes - 1) / kernels::kLanes);
  PackedLinear unbiased = w;
  unbiased.bias.clear();
  // On a thread of the pool: those have the flush modes that kernels count on.
  pool_.parallel(1, [&](std::size_t, std::size_t) {
    pack_rows(w.input, Matrix{inputs.data(), cols, w.k, w.k}, 0, args.m, const_cast<std::byte*>(packed->data()));
    run_gemm(unbiased, args);
  });
  std::vector<float> result(static_cast<std::size_t>(rows * cols));
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) {
      result[static_cast<std::size_t>(r * cols + c)] = products[static_cast<std::size_t>(c * w.n + row_begin + r)];
    }
  }
  return result;
}

std::vector<float> CpuBackend::read_vector(VectorId id) const {
  return vectors_[static_cast<std::size_t>(id.index)];
}

}  // namespace sterling::backend
