// Matrix products in the canonical arithmetic (contract.h), written once over a product type T:
//
//   T::X              what one packed activation slot is (a float, or a BF16 pair)
//   T::kSteps         dependent multiply-add steps per K pair: 2 for FMA (odd element, then even), 1 for the dot product
//   T::kPairBytes     bytes of one K pair of a weight panel
//   T::kRunPairs      K pairs of a run that is summed by itself before it joins the total; 0: one chain over all of K
//   T::kRunHeader     bytes in front of each run of a panel; T::join(run, header, total) adds a finished run to the total
//   T::W, T::load     a panel's weights for one step
//   T::broadcast, T::multiply_add
//   T::round          v_round_bf16
//   T::scatter        16 packed values of one row into its slots
//
// and over tile sizes: kRowTile rows x kColumns[rows] panels of accumulators stay in registers.
//
// Packed activations: row tiles of kRowTile rows, the last one smaller; tile t starts at slot t * kRowTile * pairs * kSteps and holds
// [pair][step][rows of the tile]. Every panel reads a tile front to back.

inline size_t pairs_of(int k) { return (static_cast<size_t>(k) + 1) / 2; }

// One K pair of R rows x N panels. Only here is anything multiplied.
template <class T, int R, int N>
inline void multiply_pair(const typename T::X* x, const char* const (&w)[N], size_t at, V (&acc)[R][N]) {
#pragma GCC unroll 2
  for (int step = 0; step < T::kSteps; ++step) {
    typename T::W weights[N];
#pragma GCC unroll 16
    for (int n = 0; n < N; ++n) weights[n] = T::load(w[n] + at, step);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const typename T::W slot = T::broadcast(x + step * R + r);
#pragma GCC unroll 16
      for (int n = 0; n < N; ++n) acc[r][n] = T::multiply_add(slot, weights[n], acc[r][n]);
    }
  }
}

// The accumulators of R rows x N panels over `segments` runs of `pairs` K pairs. panels[s * N + n] is where panel n of run s starts; x
// runs on through all of them. from_zero: begin at +0, else from out.
//
// kAhead: beside every line of the panels, the lines at the same place of ahead[0 … N) are asked for. Panels of a weight matrix are long
// and the hardware sees them coming; KV tiles lie anywhere and end before it has learnt their addresses. One run only.
template <class T, int R, int N, bool kAhead>
inline void multiply(const typename T::X* x, const char* const* panels, [[maybe_unused]] const char* const* ahead, int segments, size_t pairs,
                     bool from_zero, float* out, size_t ldo) {
  V acc[R][N];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
    for (int n = 0; n < N; ++n) acc[r][n] = from_zero ? v_zero() : v_load(out + static_cast<size_t>(r) * ldo + n * kLanes);
  }
  for (int s = 0; s < segments; ++s) {
    const char* w[N];
#pragma GCC unroll 16
    for (int n = 0; n < N; ++n) w[n] = panels[s * N + n];
    const size_t bytes = pairs * T::kPairBytes;
    const auto pair = [&](size_t at, V(&sums)[R][N]) __attribute__((always_inline)) {
      if constexpr (kAhead) {
#pragma GCC unroll 16
        for (int n = 0; n < N; ++n) {
          for (int line = 0; line < T::kPairBytes; line += 64) prefetch(ahead[n] + at + static_cast<size_t>(line));
        }
      }
      multiply_pair<T, R, N>(x, w, at, sums);
      x += T::kSteps * R;
    };
    if constexpr (T::kRunPairs == 0) {
      for (size_t at = 0; at < bytes; at += T::kPairBytes) pair(at, acc);
    } else {
      // acc holds the sum of the finished runs; each run is a chain of its own from +0.
      size_t header = 0;
      for (size_t left = bytes; left > 0;) {
        const size_t run_bytes = left < T::kRunPairs * T::kPairBytes ? left : T::kRunPairs * T::kPairBytes;
        size_t at = header + T::kRunHeader;
        const size_t end = at + run_bytes;
        V run[R][N];
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
          for (int n = 0; n < N; ++n) run[r][n] = v_zero();
        }
        for (; at < end; at += T::kPairBytes) pair(at, run);
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
          for (int n = 0; n < N; ++n) acc[r][n] = T::join(run[r][n], w[n] + header, acc[r][n]);
        }
        header = end;
        left -= run_bytes;
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
    for (int n = 0; n < N; ++n) v_store(out + static_cast<size_t>(r) * ldo + n * kLanes, acc[r][n]);
  }
}

// One call of multiply with sizes known at run time.
struct MultiplyArgs {
  const void* x;
  const char* const* panels;
  const char* const* ahead;  // for kAhead
  int segments;
  size_t pairs;
  bool from_zero;
  float* out;
  size_t ldo;
};

using MultiplyFn = void (*)(const MultiplyArgs&);

template <class T, int R, int N, bool kAhead>
void multiply_entry(const MultiplyArgs& a) {
  multiply<T, R, N, kAhead>(static_cast<const typename T::X*>(a.x), a.panels, a.ahead, a.segments, a.pairs, a.from_zero, a.out, a.ldo);
}

// The widest kernel for R rows that takes no more than `panels` panels; sets `width` to what it takes.
template <class T, bool kAhead, int R, int N>
MultiplyFn widest(int panels, int* width) {
  if constexpr (N > 1) {
    if (panels < N) return widest<T, kAhead, R, (N > 4 ? 4 : N > 2 ? 2 : 1)>(panels, width);
  }
  *width = N;
  return multiply_entry<T, R, N, kAhead>;
}

template <class T, bool kAhead, int R = kRowTile>
MultiplyFn pick_multiply(int rows, int panels, int* width) {
  if constexpr (R > 1) {
    if (rows < R) return pick_multiply<T, kAhead, R - 1>(rows, panels, width);
  }
  return widest<T, kAhead, R, kAhead ? tiles_of(R) : columns_of(R)>(panels, width);
}

inline size_t tile_rows(int m, int row) { return static_cast<size_t>(m - row < kRowTile ? m - row : kRowTile); }

// ---- packing -------------------------------------------------------------------------------------------------------------

template <class T>
size_t packed_x_bytes(int m, int k) {
  return static_cast<size_t>(m) * pairs_of(k) * T::kSteps * sizeof(typename T::X);
}

template <class T>
void pack_x(const float* x, size_t ldx, int m, int k, int row_begin, int row_end, bool round, void* packed) {
  const size_t row_slots = pairs_of(k) * T::kSteps;
  for (int tile = row_begin; tile < row_end; tile += kRowTile) {
    const size_t rows = tile_rows(m, tile);
    auto* base = static_cast<typename T::X*>(packed) + static_cast<size_t>(tile) * row_slots;
    for (size_t r = 0; r < rows; ++r) {
      const float* source = x + (static_cast<size_t>(tile) + r) * ldx;
      typename T::X* target = base + r;
      for (int i = 0; i < k; i += kLanes) {
        const int count = k - i < kLanes ? k - i : kLanes;
        V v = v_load_n(source + i, count);
        if (round) v = T::round(v);
        T::scatter(target, rows, v, (count + 1) / 2);
        target += rows * T::kSteps * (kLanes / 2);
      }
    }
  }
}

// ---- the product ---------------------------------------------------------------------------------------------------------

// Scales, adds bias, stores or adds to the output: `width` panels of finished sums of `rows` rows.
inline void finish(const GemmArgs& a, const float* sums, size_t ld, size_t row, size_t rows, int panel, int width) {
  for (size_t r = 0; r < rows; ++r) {
    for (int n = 0; n < width; ++n) {
      const int column = (panel + n) * kLanes;
      const int count = a.n - column < kLanes ? a.n - column : kLanes;
      V y = v_load(sums + r * ld + static_cast<size_t>(n * kLanes));
      if (a.row_scale != nullptr) y = v_mul(y, v_load_n(a.row_scale + column, count));
      if (a.bias != nullptr) y = v_add(y, v_load_n(a.bias + column, count));
      float* out = a.out + (row + r) * a.ldo + column;
      if (a.add) y = v_add(v_load_n(out, count), y);
      v_store_n(out, y, count);
    }
  }
}

constexpr int kChunkPanels = 8;                    // panels that share a pass over the activations
constexpr int kBlockRows = 8 * kRowTile;           // rows whose partial sums are held at once
constexpr size_t kPartialLd = kChunkPanels * kLanes;

// One chunk of panels x one block of rows. K is cut so that the chunk's panels stay in the second-level cache and one row tile in the
// first; partial sums between the cuts are stored in FP32, which changes no bit.
template <class T>
void gemm_block(const GemmArgs& a, int chunk, int chunk_panels, int block, int block_end, float* partial) {
  const size_t pairs = pairs_of(a.k);
  const size_t panel_bytes = pairs * T::kPairBytes;
  const bool one_tile = block_end - block <= kRowTile;
  const size_t cuts = one_tile || pairs == 0 ? 1 : (pairs + T::kBlockPairs - 1) / T::kBlockPairs;
  // A cut falls between runs.
  constexpr size_t kUnit = T::kRunPairs == 0 ? 1 : T::kRunPairs;
  const size_t cut_pairs = ((pairs + cuts - 1) / cuts + kUnit - 1) / kUnit * kUnit;
  for (size_t cut = 0; cut < cuts; ++cut) {
    const size_t first = cut * cut_pairs < pairs ? cut * cut_pairs : pairs;
    const size_t count = pairs - first < cut_pairs ? pairs - first : cut_pairs;
    for (int row = block; row < block_end; row += kRowTile) {
      const size_t rows = tile_rows(a.m, row);
      const auto* x = static_cast<const typename T::X*>(a.x) + (static_cast<size_t>(row) * pairs + first * rows) * T::kSteps;
      float* sums = partial + static_cast<size_t>(row - block) * kPartialLd;
      int width = 0;
      for (int n = 0; n < chunk_panels; n += width) {
        const MultiplyFn run = pick_multiply<T, false>(static_cast<int>(rows), chunk_panels - n, &width);
        const char* panels[kChunkPanels];
        for (int i = 0; i < width; ++i) {
          panels[i] = static_cast<const char*>(a.w) + static_cast<size_t>(chunk + n + i) * panel_bytes + first * T::kPairBytes;
        }
        run({x, panels, nullptr, 1, count, cut == 0, sums + n * kLanes, kPartialLd});
      }
      if (cut + 1 == cuts) finish(a, sums, kPartialLd, static_cast<size_t>(row), rows, chunk, chunk_panels);
    }
  }
}

template <class T>
void gemm(const GemmArgs* args) {
  const GemmArgs& a = *args;
  alignas(64) float partial[static_cast<size_t>(kBlockRows) * kPartialLd];
  for (int chunk = a.panel_begin; chunk < a.panel_end; chunk += kChunkPanels) {
    const int chunk_panels = a.panel_end - chunk < kChunkPanels ? a.panel_end - chunk : kChunkPanels;
    for (int block = a.row_begin; block < a.row_end; block += kBlockRows) {
      const int block_end = a.row_end - block < kBlockRows ? a.row_end : block + kBlockRows;
      gemm_block<T>(a, chunk, chunk_panels, block, block_end, partial);
    }
  }
}

// ---- products on fused multiply-add ------------------------------------------------------------------------------------------

// Activations as FP32, per pair first the odd elements of the tile's rows, then the even ones: the order of use.
struct FmaX {
  using X = float;
  using W = V;
  static constexpr int kSteps = 2;
  static constexpr size_t kBlockPairs = 256;
  static W broadcast(const X* x) { return v_set(*x); }
  static V multiply_add(W x, W w, V acc) { return v_fma(x, w, acc); }
  static V round(V v) { return v_round_bf16(v); }
  static void scatter(X* target, size_t rows, V v, int pairs) {
    alignas(64) float lanes[kLanes];
    v_store(lanes, v);
    for (int i = 0; i < pairs; ++i) {
      target[static_cast<size_t>(2 * i) * rows] = lanes[2 * i + 1];
      target[static_cast<size_t>(2 * i + 1) * rows] = lanes[2 * i];
    }
  }
};

struct FmaF32 : FmaX {
  static constexpr int kPairBytes = 128;
  static constexpr size_t kRunPairs = 8;
  static constexpr size_t kRunHeader = 0;
  static constexpr bool kRoundsToBf16 = false;
  static V join(V run, const char*, V total) { return v_add(total, run); }
  static W load(const char* w, int step) { return v_load(reinterpret_cast<const float*>(w) + (step == 0 ? kLanes : 0)); }
};

struct FmaBf16 : FmaX {
  static constexpr int kPairBytes = 64;
  static constexpr size_t kRunPairs = 0;
  static constexpr bool kRoundsToBf16 = true;
  static W load(const char* w, int step) { return from_pair(b_load(w), step); }
  // 16 lanes' pairs of BF16 weights, the even element in the low half.
  static W from_pair(B pair, int step) {
    return v_from_bits(step == 0 ? b_and(pair, b_set(0xffff0000u)) : b_shift_left<16>(pair));
  }
};
