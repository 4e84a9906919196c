// Attention over one span of keys, and the merge of spans (contract.h). Both products run on gemm.inl's tiles: a K tile is a weight panel
// whose outputs are 16 tokens; the V tiles of a span, for 16 dims, are one weight panel in runs of 8 K pairs.
//
// Row tile by row tile: all scores of the span, then softmax (largest first, then exponentials: two passes, no rescaling), then P·V. K
// and V of a span come from memory once and from the second-level cache for later row tiles. Parts that depend on what the tiles store
// are templates over a product type; attention_kv.inl chooses among them.

constexpr int kSpanTiles = kSpanTokens / kTileTokens;
constexpr int kTilePairs = kTileTokens / 2;

struct AttentionScratch {
  float* scores;  // [kRowTile][kSpanTokens]
  void* weights;  // packed like activations: kRowTile rows, kSpanTokens columns
  float* out;     // [kRowTile][dims], dims = head_dim rounded up to 16
  char* decoded;  // BF16 tiles of the span: all of K, all of V. Only with codes
};

inline size_t padded_dims(int head_dim) { return (static_cast<size_t>(head_dim) + kLanes - 1) / kLanes * kLanes; }

constexpr size_t kScoreFloats = static_cast<size_t>(kRowTile) * kSpanTokens;

inline AttentionScratch attention_scratch(void* memory, int head_dim) {
  float* floats = static_cast<float*>(memory);
  float* out = floats + 2 * kScoreFloats;
  return {floats, floats + kScoreFloats, out, reinterpret_cast<char*>(out + static_cast<size_t>(kRowTile) * padded_dims(head_dim))};
}

size_t attention_scratch_bytes(int, int head_dim, bool coded) {
  const size_t dims = padded_dims(head_dim);
  const size_t own = (2 * kScoreFloats + static_cast<size_t>(kRowTile) * dims) * sizeof(float);
  return own + (coded ? 2 * dims * kSpanTokens * sizeof(uint16_t) : 0);
}

// Scores of `rows` rows against `count` tiles, without the scale. kAhead: K comes from memory, so the next tiles are asked for. Several
// tiles at once read faster than one after the other.
template <class T, bool kAhead>
void attention_scores(const void* const* tiles, const void* q, int head_dim, int rows, int count, float* scores) {
  int width = 0;
  for (int tile = 0; tile < count; tile += width) {
    const MultiplyFn run = pick_multiply<T, kAhead>(rows, count - tile, &width);
    const char* panels[kChunkPanels];
    const char* ahead[kChunkPanels];
    for (int i = 0; i < width; ++i) {
      const int next = tile + width + i;
      panels[i] = static_cast<const char*>(tiles[tile + i]);
      ahead[i] = static_cast<const char*>(tiles[next < count ? next : tile + i]);
    }
    run({q, panels, ahead, 1, static_cast<size_t>(head_dim) / 2, true, scores + tile * kTileTokens, kSpanTokens});
  }
}

// The scales of a tile's tokens, at `at` bytes; 1 where there are none (at == 0).
inline V token_scales(const void* tile, size_t at) {
  return at == 0 ? v_set(1.0f) : v_load(reinterpret_cast<const float*>(static_cast<const char*>(tile) + at));
}

struct SoftmaxArgs {
  float* scores;
  float scale;
  const void* const* k_tiles;
  size_t k_scales;  // where a tile holds its tokens' scales; 0: nowhere
  int keys;         // 0 … tiles * 16
  int tiles;
  size_t rows;  // of the row tile
  bool round;   // probabilities to BF16
  float* max;
  float* sum;
  const void* const* v_tiles;
  size_t v_scales;
  size_t v_first, v_last;  // bytes of every V tile to ask for, which the next product reads
};

// One row: its scores become probabilities in `packed`; masked ones +0.
template <class T>
void attention_softmax(const SoftmaxArgs& a, void* packed) {
  const V factor = v_set(a.scale);
  V largest = v_set(-kInfinity);
  for (int tile = 0; tile * kTileTokens < a.keys; ++tile) {
    const V scale = a.k_scales == 0 ? factor : v_mul(factor, token_scales(a.k_tiles[tile], a.k_scales));
    float* at = a.scores + tile * kTileTokens;
    V s = v_mul(v_load(at), scale);
    const int left = a.keys - tile * kTileTokens;
    if (left < kTileTokens) s = v_select(m_first(left), s, v_set(-kInfinity));
    v_store(at, s);
    largest = v_max(largest, s);
  }
  const float top = v_largest(largest) + 0.0f;  // no negative zero
  *a.max = top;
  V total = v_zero();
  const V offset = v_set(top);
  auto* target = static_cast<typename T::X*>(packed);
  for (int tile = 0; tile < a.tiles; ++tile, target += a.rows * T::kSteps * kTilePairs) {
    for (size_t at = a.v_first; at < a.v_last; at += 64) prefetch(static_cast<const char*>(a.v_tiles[tile]) + at);
    const int left = a.keys - tile * kTileTokens;
    V p = v_zero();
    if (left > 0) {
      p = v_exp(v_sub(v_load(a.scores + tile * kTileTokens), offset));
      if (a.round) p = T::round(p);
      if (left < kTileTokens) p = v_select(m_first(left), p, v_zero());
      total = v_add(total, p);
      if (a.v_scales != 0) p = v_mul(p, token_scales(a.v_tiles[tile], a.v_scales));
    }
    T::scatter(target, a.rows, p, kTilePairs);
  }
  *a.sum = v_sum(total);
}

template <class T>
void attention_values(const void* const* tiles, const void* weights, int head_dim, int rows, int count, float* out) {
  const size_t dims = padded_dims(head_dim);
  const int blocks = static_cast<int>(dims / kLanes);
  const char* panels[kSpanTiles * kChunkPanels];
  int width = 0;
  for (int block = 0; block < blocks; block += width) {
    const MultiplyFn run = pick_multiply<T, false>(rows, blocks - block, &width);
    for (int tile = 0; tile < count; ++tile) {
      const auto* values = static_cast<const char*>(tiles[tile]);
      for (int i = 0; i < width; ++i) panels[tile * width + i] = values + static_cast<size_t>(block + i) * kTilePairs * T::kPairBytes;
    }
    run({weights, panels, nullptr, count, kTilePairs, true, out + block * kLanes, dims});
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
