// Products with coded weights (contract.h): the codes become BF16 values in registers, then everything is as with BF16 weights. Two ways
// with the same bits:
//   a few rows  codes are decoded where they are used, several panels at once; nothing but the codes is read from memory
//   many rows   a cut of a few panels is decoded once into a scratch that stays in the first-level cache, and gemm.inl's tiles run on that
// Include after the tier has defined Bf16.

constexpr size_t kBlockPairs = 4;  // K pairs of a block of codes

// kFlags: a panel has a bit per line that tells whether a code of it may have exponent 0. Without, decoding is shorter. Of the weights of
// language models one line in ten to a hundred has such a code, so a branch is cheaper than what it saves; and the integer units read the
// bits ahead of the codes, so that a branch foreseen wrongly is noticed while the vector units still have work.
struct E4m3Codes {
  static constexpr size_t kBlockBytes = 128;
  static constexpr size_t kLines = 2;
  static constexpr bool kFlags = true;
  static inline __attribute__((always_inline)) void decode_line(const char* line, bool some, B (&pairs)[2]) {
    if (__builtin_expect(some, 0)) {
      b_load_e4m3_pairs<true>(line, &pairs[0], &pairs[1]);
    } else {
      b_load_e4m3_pairs<false>(line, &pairs[0], &pairs[1]);
    }
  }
};
struct E2m1Codes {
  static constexpr size_t kBlockBytes = 64;
  static constexpr size_t kLines = 1;
  static constexpr bool kFlags = false;
  static inline __attribute__((always_inline)) void decode_line(const char* line, bool, B (&pairs)[kBlockPairs]) {
    b_e2m1_pairs(b_load(line), pairs);
  }
};

struct NoScale {
  static constexpr size_t kScaleBytes = 0;
  static V scale(const char*) { return v_set(1.0f); }
};
struct F32Scale {
  static constexpr size_t kScaleBytes = kLanes * sizeof(float);
  static V scale(const char* p) { return v_load(reinterpret_cast<const float*>(p)); }
};
struct E4m3Scale {
  static constexpr size_t kScaleBytes = kLanes;
  static V scale(const char* p) { return v_load_e4m3(p); }
};
struct E8m0Scale {
  static constexpr size_t kScaleBytes = kLanes;
  static V scale(const char* p) { return v_from_bits(b_shift_left<23>(b_load_bytes(p))); }
};

// kPairs: K pairs of a group; 0: no groups.
template <class Codes, class Scale, size_t kPairs>
struct Coded : Codes, Scale {
  static constexpr size_t kGroupPairs = kPairs;
  static constexpr bool kGrouped = kPairs != 0;
};
using Fp8 = Coded<E4m3Codes, NoScale, 0>;
using Fp8Block = Coded<E4m3Codes, F32Scale, 64>;
using Nvfp4 = Coded<E2m1Codes, E4m3Scale, 8>;
using Mxfp4 = Coded<E2m1Codes, E8m0Scale, 16>;
using Mxfp8 = Coded<E4m3Codes, E8m0Scale, 16>;

inline bool flag_of(const char* flags, size_t line) {
  return (static_cast<unsigned char>(flags[line / 8]) >> (line % 8) & 1u) != 0;
}

// Bytes of a panel in front of K pair `pair`, the start of a block; of a group, if F has groups and it starts one.
template <class F>
size_t coded_offset(size_t pair) {
  size_t groups = 0;
  if constexpr (F::kGrouped) groups = (pair + F::kGroupPairs - 1) / F::kGroupPairs;
  return groups * F::kScaleBytes + (pair + kBlockPairs - 1) / kBlockPairs * F::kBlockBytes;
}
template <class F>
size_t coded_panel_bytes(size_t pairs) {
  const size_t lines = (pairs + kBlockPairs - 1) / kBlockPairs * F::kLines;
  return coded_offset<F>(pairs) + (F::kFlags ? (lines + 511) / 512 * 64 : 0);
}

// ---- a few rows ----------------------------------------------------------------------------------------------------------

// Where R rows x N panels are along K.
template <int N>
struct CodedPlace {
  const typename Bf16::X* x;
  const char* w[N];
  const char* flags[N];
  size_t line;
};

template <class F, int R, int N>
inline __attribute__((always_inline)) void coded_block(CodedPlace<N>& at, V (&acc)[R][N]) {
#pragma GCC unroll 4
  for (size_t line = 0; line < F::kLines; ++line) {
    constexpr size_t kPairs = kBlockPairs / F::kLines;
    B pairs[N][kPairs];
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
      F::decode_line(at.w[n], F::kFlags && flag_of(at.flags[n], at.line), pairs[n]);
      at.w[n] += 64;
    }
    ++at.line;
    // Step by step through all panels: neighbours in the instruction stream do not wait for each other.
#pragma GCC unroll 4
    for (size_t i = 0; i < kPairs; ++i) {
#pragma GCC unroll 2
      for (int step = 0; step < Bf16::kSteps; ++step) {
#pragma GCC unroll 8
        for (int n = 0; n < N; ++n) {
          const typename Bf16::W weights = Bf16::from_pair(pairs[n][i], step);
#pragma GCC unroll 4
          for (int r = 0; r < R; ++r) {
            acc[r][n] = Bf16::multiply_add(Bf16::broadcast(at.x + (i * Bf16::kSteps + static_cast<size_t>(step)) * R + r), weights, acc[r][n]);
          }
        }
      }
    }
    at.x += kPairs * Bf16::kSteps * R;
  }
}

// The chain over `count` pairs, which start a block. Moves on.
template <class F, int R, int N>
inline __attribute__((always_inline)) void coded_chain(CodedPlace<N>& at, size_t count, V (&acc)[R][N]) {
  for (; count >= kBlockPairs; count -= kBlockPairs) coded_block<F, R, N>(at, acc);
  if (count == 0) return;
  for (int n = 0; n < N; ++n) {
    B pairs[F::kLines][kBlockPairs / F::kLines];
    for (size_t line = 0; line < F::kLines; ++line) F::decode_line(at.w[n] + 64 * line, true, pairs[line]);
    for (size_t i = 0; i < count; ++i) {
      for (int step = 0; step < Bf16::kSteps; ++step) {
        for (int r = 0; r < R; ++r) {
          acc[r][n] = Bf16::multiply_add(Bf16::broadcast(at.x + (i * Bf16::kSteps + static_cast<size_t>(step)) * R + r),
                                         Bf16::from_pair(pairs[i * F::kLines / kBlockPairs][i % (kBlockPairs / F::kLines)], step), acc[r][n]);
        }
      }
    }
  }
}

template <class F, int R, int N>
inline __attribute__((always_inline)) void coded_group(CodedPlace<N>& at, size_t count, V (&total)[R][N]) {
  const char* scales[N];
  V part[R][N];
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) {
    scales[n] = at.w[n];
    at.w[n] += F::kScaleBytes;
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) part[r][n] = v_zero();
  }
  coded_chain<F, R, N>(at, count, part);
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) {
    const V scale = F::scale(scales[n]);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) total[r][n] = v_fma(part[r][n], scale, total[r][n]);
  }
}

// All of K of R rows x N panels of panel_bytes each.
template <class F, int R, int N>
void coded_multiply(const void* packed, const char* panels, size_t panel_bytes, size_t pairs, float* out) {
  CodedPlace<N> at;
  at.x = static_cast<const typename Bf16::X*>(packed);
  at.line = 0;
  V total[R][N];
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) {
    at.w[n] = panels + static_cast<size_t>(n) * panel_bytes;
    at.flags[n] = at.w[n] + coded_offset<F>(pairs);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) total[r][n] = v_zero();
  }
  if constexpr (F::kGrouped) {
    size_t left = pairs;
    for (; left >= F::kGroupPairs; left -= F::kGroupPairs) coded_group<F, R, N>(at, F::kGroupPairs, total);
    if (left > 0) coded_group<F, R, N>(at, left, total);
  } else {
    coded_chain<F, R, N>(at, pairs, total);
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) v_store(out + static_cast<size_t>(r) * kPartialLd + n * kLanes, total[r][n]);
  }
}

using CodedMultiplyFn = void (*)(const void* packed, const char* panels, size_t panel_bytes, size_t pairs, float* out);

constexpr int kDirectRows = kRowTile < 4 ? kRowTile : 4;
// Panels at once. Decoding leaves the multiply-adds time, so that four chains hide their latency; and four streams from memory are followed
// better than eight (0.71 against 0.63 of the read bandwidth, FP8, one Zen 4 core).
constexpr int coded_columns_of(int rows) {
  return kVectorRegisters == 0 ? 1 : rows == 4 ? 2 : 4;
}

template <class F, int R, int N = coded_columns_of(R)>
CodedMultiplyFn pick_coded(int rows, int panels, int* width) {
  if constexpr (R > 1) {
    if (rows < R) return pick_coded<F, R - 1>(rows, panels, width);
  }
  if constexpr (N > 1) {
    if (panels < N) return pick_coded<F, R, N / 2>(rows, panels, width);
  }
  *width = N;
  return coded_multiply<F, R, N>;
}

template <class F>
void gemm_coded_direct(const GemmArgs& a) {
  const size_t pairs = pairs_of(a.k);
  const size_t panel_bytes = coded_panel_bytes<F>(pairs);
  const auto rows = static_cast<size_t>(a.row_end - a.row_begin);
  const auto* x = static_cast<const typename Bf16::X*>(a.x) + static_cast<size_t>(a.row_begin) * pairs * Bf16::kSteps;
  alignas(64) float sums[static_cast<size_t>(kDirectRows) * kPartialLd];
  int width = 0;
  for (int panel = a.panel_begin; panel < a.panel_end; panel += width) {
    const CodedMultiplyFn run = pick_coded<F, kDirectRows>(static_cast<int>(rows), a.panel_end - panel, &width);
    run(x, static_cast<const char*>(a.w) + static_cast<size_t>(panel) * panel_bytes, panel_bytes, pairs, sums);
    finish(a, sums, kPartialLd, static_cast<size_t>(a.row_begin), rows, panel, width);
  }
}

// ---- many rows -----------------------------------------------------------------------------------------------------------

// A decoded panel: per group the 16 scales in FP32, then BF16 pairs.
template <size_t kGroupPairs>
struct DecodedGroups : Bf16 {
  static constexpr size_t kRunPairs = kGroupPairs;
  static constexpr size_t kRunHeader = kLanes * sizeof(float);
  static V join(V run, const char* header, V total) { return v_fma(run, v_load(reinterpret_cast<const float*>(header)), total); }
};
// What the tiles multiply: a type per group size, and plain BF16 panels where there are no groups.
template <size_t kGroupPairs>
struct DecodedOf {
  using T = DecodedGroups<kGroupPairs>;
};
template <>
struct DecodedOf<0> {
  using T = Bf16;
};

constexpr size_t kCutPairs = 128;  // a multiple of every group
// Of a panel: a header per group of eight pairs at most; the odd lines keep panels from meeting in the same cache sets.
constexpr size_t kScratchPanelBytes = kCutPairs * 64 + kCutPairs / 8 * 64 + 3 * 64;

constexpr int kScratchPanels = 4;

// Decodes `count` pairs of a panel from line `line` on, which starts a group or a block. Asks for the codes of the next cut.
template <class F>
void decode_panel(const char* w, const char* flags, size_t line, size_t count, char* out) {
  const size_t ahead = coded_offset<F>(count);
  while (count > 0) {
    size_t group = count;
    if constexpr (F::kGrouped) {
      group = count < F::kGroupPairs ? count : F::kGroupPairs;
      v_store(reinterpret_cast<float*>(out), F::scale(w));
      w += F::kScaleBytes;
      out += kLanes * sizeof(float);
    }
    for (size_t at = 0; at < group; at += kBlockPairs) {
#pragma GCC unroll 2
      for (size_t i = 0; i < F::kLines; ++i) {
        B pairs[kBlockPairs / F::kLines];
        F::decode_line(w, F::kFlags && flag_of(flags, line), pairs);
        ++line;
        prefetch(w + ahead);
        w += 64;
        for (const B& pair : pairs) {
          b_store(out, pair);
          out += 64;
        }
      }
    }
    count -= group;
  }
}

template <class F>
void gemm_coded_block(const GemmArgs& a, int chunk, int chunk_panels, int block, int block_end, float* partial, char* scratch) {
  using T = typename DecodedOf<F::kGroupPairs>::T;
  constexpr size_t kUnit = F::kGrouped ? F::kGroupPairs : kBlockPairs;
  const size_t pairs = pairs_of(a.k);
  const size_t panel_bytes = coded_panel_bytes<F>(pairs);
  const size_t cuts = pairs == 0 ? 1 : (pairs + kCutPairs - 1) / kCutPairs;
  const size_t cut_pairs = ((pairs + cuts - 1) / cuts + kUnit - 1) / kUnit * kUnit;
  for (size_t cut = 0; cut < cuts; ++cut) {
    const size_t first = cut * cut_pairs < pairs ? cut * cut_pairs : pairs;
    const size_t count = pairs - first < cut_pairs ? pairs - first : cut_pairs;
    const char* panels[kChunkPanels];
    for (int n = 0; n < chunk_panels; ++n) {
      char* const decoded = scratch + static_cast<size_t>(n) * kScratchPanelBytes;
      const char* const panel = static_cast<const char*>(a.w) + static_cast<size_t>(chunk + n) * panel_bytes;
      decode_panel<F>(panel + coded_offset<F>(first), panel + coded_offset<F>(pairs), first / kBlockPairs * F::kLines, count, decoded);
      panels[n] = decoded;
    }
    for (int row = block; row < block_end; row += kRowTile) {
      const size_t rows = tile_rows(a.m, row);
      const auto* x = static_cast<const typename T::X*>(a.x) + (static_cast<size_t>(row) * pairs + first * rows) * T::kSteps;
      float* sums = partial + static_cast<size_t>(row - block) * kPartialLd;
      int width = 0;
      for (int n = 0; n < chunk_panels; n += width) {
        const MultiplyFn run = pick_multiply<T, false>(static_cast<int>(rows), chunk_panels - n, &width);
        run({x, panels + n, nullptr, 1, count, cut == 0, sums + n * kLanes, kPartialLd});
      }
      if (cut + 1 == cuts) finish(a, sums, kPartialLd, static_cast<size_t>(row), rows, chunk, chunk_panels);
    }
  }
}

template <class F>
void gemm_coded(const GemmArgs* args) {
  const GemmArgs& a = *args;
  if (a.row_end - a.row_begin <= kDirectRows) return gemm_coded_direct<F>(a);
  // As many panels as a register tile takes.
  const int rows = a.row_end - a.row_begin < kRowTile ? a.row_end - a.row_begin : kRowTile;
  const int width = columns_of(rows) < kScratchPanels ? columns_of(rows) : kScratchPanels;
  alignas(64) float partial[static_cast<size_t>(kBlockRows) * kPartialLd];
  alignas(64) char scratch[kScratchPanels * kScratchPanelBytes];
  for (int chunk = a.panel_begin; chunk < a.panel_end; chunk += width) {
    const int chunk_panels = a.panel_end - chunk < width ? a.panel_end - chunk : width;
    for (int block = a.row_begin; block < a.row_end; block += kBlockRows) {
      const int block_end = a.row_end - block < kBlockRows ? a.row_end : block + kBlockRows;
      gemm_coded_block<F>(a, chunk, chunk_panels, block, block_end, partial, scratch);
    }
  }
}
