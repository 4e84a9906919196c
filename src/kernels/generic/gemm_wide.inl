// Products of the FP32 reference (contract.h, gemm_f32_wide): FP32 inputs, sums in double, rounded once. A product of two FP32 numbers is exact in
// double, so whether it is fused with the addition does not show.

// Rows at once: their sums stay in registers, two (AVX-512) or four (AVX2) of them a row.
constexpr int kWideRows = kVectorRegisters == 32 ? 12 : 2;

// R rows x N panels. x: the first row's slots, `rows` apart from step to step, the odd element of a pair first.
template <int R, int N>
inline void wide_panels(const float* x, size_t rows, const float* w, size_t panel_floats, size_t pairs, float* out) {
  D sum[R][N];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
    for (int n = 0; n < N; ++n) sum[r][n] = d_zero();
  }
  for (size_t i = 0; i < pairs; ++i, x += 2 * rows, w += 2 * kLanes) {
#pragma GCC unroll 2
    for (int element = 0; element < 2; ++element) {  // even, odd: ascending K
      D weights[N];
#pragma GCC unroll 16
      for (int n = 0; n < N; ++n) weights[n] = d_widen(w + static_cast<size_t>(n) * panel_floats + element * kLanes);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        const DX slot = d_broadcast(x + (element == 0 ? rows : 0) + r);
#pragma GCC unroll 16
        for (int n = 0; n < N; ++n) sum[r][n] = d_multiply_add(slot, weights[n], sum[r][n]);
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
    for (int n = 0; n < N; ++n) v_store(out + (r * N + n) * kLanes, d_narrow(sum[r][n]));
  }
}

// Rows [r, end of the tile) of N panels: as many at once as there are.
template <int N, int R>
inline void wide_rows(const GemmArgs& a, size_t tile, size_t rows, size_t r, int panel) {
  const size_t pairs = pairs_of(a.k);
  const size_t panel_floats = pairs * 2 * kLanes;
  const float* w = static_cast<const float*>(a.w) + static_cast<size_t>(panel) * panel_floats;
  const float* x = static_cast<const float*>(a.x) + tile * pairs * 2;
  alignas(64) float sums[R * N * kLanes];
  for (; rows - r >= R; r += R) {
    wide_panels<R, N>(x + r, rows, w, panel_floats, pairs, sums);
    finish(a, sums, N * kLanes, tile + r, R, panel, N);
  }
  if constexpr (R > 1) wide_rows<N, R == 12 ? 4 : R / 2>(a, tile, rows, r, panel);
}

void gemm_f32_wide(const GemmArgs* args) {
  const GemmArgs& a = *args;
  constexpr int kColumnsOfOneRow = 4;  // chains of additions hide each other's latency
  int panel = a.panel_begin;
  if (a.row_end - a.row_begin == 1) {
    for (; panel + kColumnsOfOneRow <= a.panel_end; panel += kColumnsOfOneRow) {
      wide_rows<kColumnsOfOneRow, 1>(a, static_cast<size_t>(a.row_begin), 1, 0, panel);
    }
  }
  for (; panel < a.panel_end; ++panel) {
    for (int tile = a.row_begin; tile < a.row_end; tile += kRowTile) {
      wide_rows<1, kWideRows>(a, static_cast<size_t>(tile), tile_rows(a.m, tile), 0, panel);
    }
  }
}
