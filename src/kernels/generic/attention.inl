// Attention over one span of keys, and the merge of spans (contract.h). Both products run on gemm.inl's tiles: a K tile is a weight panel
// whose outputs are 16 tokens; the V tiles of a span, for 16 dims, are one weight panel in runs of 8 K pairs.
//
// Row tile by row tile: all scores of the span, then softmax (largest first, then exponentials: two passes, no rescaling), then P·V. K
// and V of a span come from memory once and from the second-level cache for later row tiles.

constexpr int kSpanTiles = kSpanTokens / kTileTokens;
constexpr int kTilePairs = kTileTokens / 2;

struct AttentionScratch {
  float* scores;  // [kRowTile][kSpanTokens]
  void* weights;  // packed like activations: kRowTile rows, kSpanTokens columns
  float* out;     // [kRowTile][dims], dims = head_dim rounded up to 16
};

inline size_t padded_dims(int head_dim) { return (static_cast<size_t>(head_dim) + kLanes - 1) / kLanes * kLanes; }

inline AttentionScratch attention_scratch(void* memory) {
  float* floats = static_cast<float*>(memory);
  constexpr size_t kScores = static_cast<size_t>(kRowTile) * kSpanTokens;
  return {floats, floats + kScores, floats + 2 * kScores};
}

size_t attention_scratch_bytes(int, int head_dim) {
  return (2 * static_cast<size_t>(kRowTile) * kSpanTokens + static_cast<size_t>(kRowTile) * padded_dims(head_dim)) * sizeof(float);
}

// Scores of `rows` rows against `tiles` tiles, without the scale. kAhead: K comes from memory, so the next tiles are asked for. Several
// tiles at once read faster than one after the other.
template <class T, bool kAhead>
void attention_scores(const AttentionSpanArgs& a, const void* q, int rows, int tiles, float* scores) {
  int width = 0;
  for (int tile = 0; tile < tiles; tile += width) {
    const MultiplyFn run = pick_multiply<T, kAhead>(rows, tiles - tile, &width);
    const char* panels[kChunkPanels];
    const char* ahead[kChunkPanels];
    for (int i = 0; i < width; ++i) {
      const int next = tile + width + i;
      panels[i] = static_cast<const char*>(a.k_tiles[tile + i]);
      ahead[i] = static_cast<const char*>(a.k_tiles[next < tiles ? next : tile + i]);
    }
    run({q, panels, ahead, 1, static_cast<size_t>(a.head_dim) / 2, true, scores + tile * kTileTokens, kSpanTokens});
  }
}

// Row r of `rows`: its scores become probabilities in `packed`; masked ones +0. `keys` in 0 … tiles * 16. Asks for the bytes
// [v_first, v_last) of every V tile, which the next product reads.
template <class T>
void attention_softmax(float* scores, float scale, int keys, int tiles, size_t rows, typename T::X* packed, float* max, float* sum,
                       const void* const* v_tiles, size_t v_first, size_t v_last) {
  const V factor = v_set(scale);
  V largest = v_set(-kInfinity);
  int tile = 0;
  for (; (tile + 1) * kTileTokens <= keys; ++tile) {
    const V s = v_mul(v_load(scores + tile * kTileTokens), factor);
    v_store(scores + tile * kTileTokens, s);
    largest = v_max(largest, s);
  }
  const int rest = keys - tile * kTileTokens;
  if (rest > 0) {
    const V s = v_select(m_first(rest), v_mul(v_load(scores + tile * kTileTokens), factor), v_set(-kInfinity));
    v_store(scores + tile * kTileTokens, s);
    largest = v_max(largest, s);
  }
  const float top = v_largest(largest) + 0.0f;  // no negative zero
  *max = top;
  V total = v_zero();
  const V offset = v_set(top);
  typename T::X* target = packed;
  for (tile = 0; tile < tiles; ++tile, target += rows * T::kSteps * kTilePairs) {
    for (size_t at = v_first; at < v_last; at += 64) prefetch(static_cast<const char*>(v_tiles[tile]) + at);
    const int left = keys - tile * kTileTokens;
    V p = v_zero();
    if (left > 0) {
      p = v_exp(v_sub(v_load(scores + tile * kTileTokens), offset));
      if constexpr (T::kRoundsToBf16) p = T::round(p);
      if (left < kTileTokens) p = v_select(m_first(left), p, v_zero());
      total = v_add(total, p);
    }
    T::scatter(target, rows, p, kTilePairs);
  }
  *sum = v_sum(total);
}

template <class T>
void attention_values(const AttentionSpanArgs& a, const void* weights, int rows, int tiles, float* out) {
  const size_t dims = padded_dims(a.head_dim);
  const int blocks = static_cast<int>(dims / kLanes);
  const char* panels[kSpanTiles * kChunkPanels];
  int width = 0;
  for (int block = 0; block < blocks; block += width) {
    const MultiplyFn run = pick_multiply<T, false>(rows, blocks - block, &width);
    for (int tile = 0; tile < tiles; ++tile) {
      const auto* values = static_cast<const char*>(a.v_tiles[tile]);
      for (int i = 0; i < width; ++i) panels[tile * width + i] = values + static_cast<size_t>(block + i) * kTilePairs * T::kPairBytes;
    }
    run({weights, panels, nullptr, tiles, kTilePairs, true, out + block * kLanes, dims});
  }
}

// Rows of a tile that see no key of this span.
inline void attention_nothing(const AttentionSpanArgs& a, int row, int rows) {
  for (int r = row; r < row + rows; ++r) {
    a.max[r] = -kInfinity;
    a.sum[r] = 0.0f;
    float* out = a.out + static_cast<size_t>(r) * static_cast<size_t>(a.head_dim);
    for (int d = 0; d < a.head_dim; ++d) out[d] = 0.0f;
  }
}

// Rows [row, row + rows) of the call: one row tile of the packed queries.
template <class T>
void attention_tile(const AttentionSpanArgs& a, int row, int rows, const AttentionScratch& scratch) {
  const int all_keys = a.tiles * kTileTokens;
  int most = 0;
  for (int r = 0; r < rows; ++r) most = a.visible[row + r] > most ? a.visible[row + r] : most;
  most = most < all_keys ? most : all_keys;
  const int tiles = (most + kTileTokens - 1) / kTileTokens;

  const size_t row_slots = static_cast<size_t>(a.head_dim) / 2 * T::kSteps;
  if (tiles == 0) {
    attention_nothing(a, row, rows);
    return;
  }
  const auto* q = static_cast<const typename T::X*>(a.q) + static_cast<size_t>(row) * row_slots;
  row == 0 ? attention_scores<T, true>(a, q, rows, tiles, scratch.scores) : attention_scores<T, false>(a, q, rows, tiles, scratch.scores);
  auto* packed = static_cast<typename T::X*>(scratch.weights);
  // The first row tile asks for V while it works on the softmax, each row for its share of every tile's lines.
  const size_t v_lines = padded_dims(a.head_dim) / kLanes * kTilePairs * T::kPairBytes / 64;
  const size_t v_share = row == 0 ? (v_lines + static_cast<size_t>(rows) - 1) / static_cast<size_t>(rows) * 64 : 0;
  for (int r = 0; r < rows; ++r) {
    const int visible = a.visible[row + r];
    const int keys = visible < 0 ? 0 : visible < all_keys ? visible : all_keys;
    attention_softmax<T>(scratch.scores + static_cast<size_t>(r) * kSpanTokens, a.scale, keys, tiles, static_cast<size_t>(rows),
                         packed + r, a.max + row + r, a.sum + row + r, a.v_tiles, v_share * static_cast<size_t>(r),
                         v_share * static_cast<size_t>(r + 1));
  }
  attention_values<T>(a, packed, rows, tiles, scratch.out);
  const size_t dims = padded_dims(a.head_dim);
  for (int r = 0; r < rows; ++r) {
    const bool any = a.visible[row + r] > 0;
    float* out = a.out + static_cast<size_t>(row + r) * static_cast<size_t>(a.head_dim);
    for (int d = 0; d < a.head_dim; d += kLanes) {
      const int count = a.head_dim - d < kLanes ? a.head_dim - d : kLanes;
      // + 0 clears the sign of a zero, which could tell how many masked keys were passed over.
      const V y = any ? v_add(v_load(scratch.out + static_cast<size_t>(r) * dims + d), v_zero()) : v_zero();
      v_store_n(out + d, y, count);
    }
  }
}

template <class T>
void attention_span(const AttentionSpanArgs* args) {
  const AttentionScratch scratch = attention_scratch(args->scratch);
  for (int row = 0; row < args->m; row += kRowTile) {
    attention_tile<T>(*args, row, static_cast<int>(tile_rows(args->m, row)), scratch);
  }
}

void attention_merge(const AttentionMergeArgs* args) {
  const AttentionMergeArgs& a = *args;
  const size_t m = static_cast<size_t>(a.m);
  const size_t head_dim = static_cast<size_t>(a.head_dim);
  for (size_t row = 0; row < m; ++row) {
    float* result = a.result + row * a.ld;
    for (int d = 0; d < a.head_dim; d += kLanes) v_store_n(result + d, v_zero(), a.head_dim - d < kLanes ? a.head_dim - d : kLanes);
    float max = -kInfinity;
    V sum = v_zero();
    for (int span = 0; span < a.spans; ++span) {
      const size_t at = static_cast<size_t>(span) * m + row;
      if (a.sum[at] == 0.0f) continue;
      const float new_max = max > a.max[at] ? max : a.max[at];
      const V old_factor = v_exp(v_set(max - new_max));
      const V new_factor = v_exp(v_set(a.max[at] - new_max));
      sum = v_fma(sum, old_factor, v_mul(v_set(a.sum[at]), new_factor));
      const float* out = a.out + at * head_dim;
      for (int d = 0; d < a.head_dim; d += kLanes) {
        const int count = a.head_dim - d < kLanes ? a.head_dim - d : kLanes;
        const V added = v_mul(v_load_n(out + d, count), new_factor);
        v_store_n(result + d, v_fma(v_load_n(result + d, count), old_factor, added), count);
      }
      max = new_max;
    }
    for (int d = 0; d < a.head_dim; d += kLanes) {
      const int count = a.head_dim - d < kLanes ? a.head_dim - d : kLanes;
      v_store_n(result + d, v_div(v_load_n(result + d, count), sum), count);
    }
  }
}
