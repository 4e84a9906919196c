// Products of the FP32 reference (contract.h, gemm_f32_wide): FP32 inputs, sums in double, rounded once. A product of two FP32 numbers is exact in
// double, so whether the compiler fuses it with the addition does not show; the loops over lanes are left to its vectoriser.

// R rows of one panel. x: the first row's slots, `rows` apart from pair to pair and step to step.
template <int R>
inline void wide_panel(const float* x, size_t rows, const float* w, size_t pairs, float (*out)[kLanes]) {
  double sum[R][kLanes] = {};
  for (size_t i = 0; i < pairs; ++i, x += 2 * rows, w += 2 * kLanes) {
    for (int r = 0; r < R; ++r) {
      const double odd = static_cast<double>(x[r]);
      const double even = static_cast<double>(x[rows + static_cast<size_t>(r)]);
      for (int lane = 0; lane < kLanes; ++lane) {
        sum[r][lane] += even * static_cast<double>(w[lane]);
        sum[r][lane] += odd * static_cast<double>(w[kLanes + lane]);
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int lane = 0; lane < kLanes; ++lane) out[r][lane] = static_cast<float>(sum[r][lane]);
  }
}

void gemm_f32_wide(const GemmArgs* args) {
  const GemmArgs& a = *args;
  const size_t pairs = pairs_of(a.k);
  alignas(64) float sums[4][kLanes];
  for (int panel = a.panel_begin; panel < a.panel_end; ++panel) {
    const float* w = static_cast<const float*>(a.w) + static_cast<size_t>(panel) * pairs * 2 * kLanes;
    for (int tile = a.row_begin; tile < a.row_end; tile += kRowTile) {
      const size_t rows = tile_rows(a.m, tile);
      const float* x = static_cast<const float*>(a.x) + static_cast<size_t>(tile) * pairs * 2;
      for (size_t r = 0; r < rows;) {
        const size_t count = rows - r >= 4 ? 4 : 1;
        count == 4 ? wide_panel<4>(x + r, rows, w, pairs, sums) : wide_panel<1>(x + r, rows, w, pairs, sums);
        finish(a, &sums[0][0], kLanes, static_cast<size_t>(tile) + r, count, panel, 1);
        r += count;
      }
    }
  }
}
