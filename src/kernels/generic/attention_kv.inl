// Which product serves which KV code, and the span around it. FP8 codes become BF16 values in one of two ways with the same bits:
//   one row tile, BF16 form   where they are used, in registers: nothing but the codes is read from memory
//   else                      once per span into BF16 tiles in the scratch, which stay in the second-level cache for all row tiles
// Include after the tier has defined Bf16.

template <class Code>
struct CodedBf16 : Bf16 {
  static constexpr int kPairBytes = 32;
  static typename Bf16::W load(const char* w, int step) { return Bf16::from_pair(b_load_kv_pair<Code>(w), step); }
};
// BF16 tiles in the FP32 form.
struct WidenedBf16 : FmaF32 {
  static constexpr int kPairBytes = 64;
  static V load(const char* w, int step) { return FmaBf16::load(w, step); }
};

using ScoresFn = void (*)(const void* const* tiles, const void* q, int head_dim, int rows, int count, float* scores);
using SoftmaxFn = void (*)(const SoftmaxArgs& args, void* packed);
using ValuesFn = void (*)(const void* const* tiles, const void* weights, int head_dim, int rows, int count, float* out);

// One side of the span.
struct KvSideForm {
  const void* const* tiles;  // what the product reads
  size_t pair_bytes;
  size_t slot_bytes;      // of packed activations
  size_t pair_slot_bytes;  // a K pair of one row
  size_t scales;          // where a stored tile holds its tokens' scales; 0: nowhere
};
struct AttentionForm {
  KvSideForm k, v;
  ScoresFn first_scores, scores;  // of the first row tile, of later ones
  SoftmaxFn softmax;              // fills the weights of v
  ValuesFn values;
};

inline bool is_coded(KvCode code) { return code != KvCode::kBf16 && code != KvCode::kFp32; }

template <class T>
void set_k_form(AttentionForm& form) {
  form.k.pair_bytes = T::kPairBytes;
  form.k.slot_bytes = sizeof(typename T::X);
  form.k.pair_slot_bytes = T::kSteps * sizeof(typename T::X);
  form.first_scores = attention_scores<T, true>;
  form.scores = attention_scores<T, false>;
}
template <class T>
void set_v_form(AttentionForm& form) {
  form.v.pair_bytes = T::kPairBytes;
  form.v.slot_bytes = sizeof(typename T::X);
  form.v.pair_slot_bytes = T::kSteps * sizeof(typename T::X);
  form.softmax = attention_softmax<T>;
  form.values = attention_values<T>;
}

template <class Code>
void decode_tile(const char* from, size_t pairs, char* to) {
  for (size_t i = 0; i < pairs; ++i) b_store(to + i * 64, b_load_kv_pair<Code>(from + i * 32));
}

// Decodes the first `count` tiles of `pairs` pairs each; decoded[i] is where tile i went.
inline void decode_tiles(KvCode code, const void* const* tiles, int count, size_t pairs, char* to, const void** decoded) {
  for (int tile = 0; tile < count; ++tile) {
    char* const target = to + static_cast<size_t>(tile) * pairs * 64;
    const auto* from = static_cast<const char*>(tiles[tile]);
    code == KvCode::kE5m2 ? decode_tile<E5m2Kv>(from, pairs, target) : decode_tile<E4m3Kv>(from, pairs, target);
    decoded[tile] = target;
  }
}

// Rows [row, row + rows) of the call: one row tile of the packed queries.
inline void attention_tile(const AttentionSpanArgs& a, const AttentionForm& form, int row, int rows, const AttentionScratch& scratch) {
  const int all_keys = a.tiles * kTileTokens;
  int most = 0;
  for (int r = 0; r < rows; ++r) most = a.visible[row + r] > most ? a.visible[row + r] : most;
  most = most < all_keys ? most : all_keys;
  const int tiles = (most + kTileTokens - 1) / kTileTokens;
  if (tiles == 0) {
    attention_nothing(a, row, rows);
    return;
  }
  const size_t dims = padded_dims(a.head_dim);
  const auto* q = static_cast<const char*>(a.q) + static_cast<size_t>(row) * (static_cast<size_t>(a.head_dim) / 2) * form.k.pair_slot_bytes;
  (row == 0 ? form.first_scores : form.scores)(form.k.tiles, q, a.head_dim, rows, tiles, scratch.scores);
  // The first row tile asks for V while it works on the softmax, each row for its share of every tile's lines.
  const size_t v_lines = dims / kLanes * kTilePairs * form.v.pair_bytes / 64;
  const size_t v_share = row == 0 ? (v_lines + static_cast<size_t>(rows) - 1) / static_cast<size_t>(rows) * 64 : 0;
  for (int r = 0; r < rows; ++r) {
    const int visible = a.visible[row + r];
    SoftmaxArgs softmax;
    softmax.scores = scratch.scores + static_cast<size_t>(r) * kSpanTokens;
    softmax.scale = a.scale;
    softmax.k_tiles = a.k_tiles;
    softmax.k_scales = form.k.scales;
    softmax.keys = visible < 0 ? 0 : visible < all_keys ? visible : all_keys;
    softmax.tiles = tiles;
    softmax.rows = static_cast<size_t>(rows);
    softmax.round = !a.wide;
    softmax.max = a.max + row + r;
    softmax.sum = a.sum + row + r;
    softmax.v_tiles = a.v_tiles;
    softmax.v_scales = form.v.scales;
    softmax.v_first = v_share * static_cast<size_t>(r);
    softmax.v_last = v_share * static_cast<size_t>(r + 1);
    form.softmax(softmax, static_cast<char*>(scratch.weights) + static_cast<size_t>(r) * form.v.slot_bytes);
  }
  form.values(form.v.tiles, scratch.weights, a.head_dim, rows, tiles, scratch.out);
  const V v_scale = v_set(a.v_scale);
  for (int r = 0; r < rows; ++r) {
    const bool any = a.visible[row + r] > 0;
    float* out = a.out + static_cast<size_t>(row + r) * static_cast<size_t>(a.head_dim);
    for (int d = 0; d < a.head_dim; d += kLanes) {
      const int count = a.head_dim - d < kLanes ? a.head_dim - d : kLanes;
      // + 0 clears the sign of a zero, which could tell how many masked keys were passed over.
      const V y = any ? v_add(v_mul(v_load(scratch.out + static_cast<size_t>(r) * dims + d), v_scale), v_zero()) : v_zero();
      v_store_n(out + d, y, count);
    }
  }
}

void attention_span(const AttentionSpanArgs* args) {
  const AttentionSpanArgs& a = *args;
  const AttentionScratch scratch = attention_scratch(a.scratch, a.head_dim);
  const size_t dims = padded_dims(a.head_dim);
  const void* k_decoded[kSpanTiles];
  const void* v_decoded[kSpanTiles];
  AttentionForm form;
  form.k.tiles = a.k_tiles;
  form.v.tiles = a.v_tiles;
  form.k.scales = a.k_code == KvCode::kE4m3Token ? static_cast<size_t>(a.head_dim) * kTileTokens : 0;
  form.v.scales = a.v_code == KvCode::kE4m3Token ? dims * kTileTokens : 0;
  const bool direct = !a.wide && a.m <= kRowTile;
  if (is_coded(a.k_code) && direct) {
    a.k_code == KvCode::kE5m2 ? set_k_form<CodedBf16<E5m2Kv>>(form) : set_k_form<CodedBf16<E4m3Kv>>(form);
  } else if (a.k_code == KvCode::kFp32) {
    set_k_form<FmaF32>(form);
  } else {
    a.wide ? set_k_form<WidenedBf16>(form) : set_k_form<Bf16>(form);
  }
  if (is_coded(a.v_code) && direct) {
    a.v_code == KvCode::kE5m2 ? set_v_form<CodedBf16<E5m2Kv>>(form) : set_v_form<CodedBf16<E4m3Kv>>(form);
  } else if (a.v_code == KvCode::kFp32) {
    set_v_form<FmaF32>(form);
  } else {
    a.wide ? set_v_form<WidenedBf16>(form) : set_v_form<Bf16>(form);
  }
  if (is_coded(a.k_code) && !direct) {
    decode_tiles(a.k_code, a.k_tiles, a.tiles, static_cast<size_t>(a.head_dim) / 2, scratch.decoded, k_decoded);
    form.k.tiles = k_decoded;
  }
  if (is_coded(a.v_code) && !direct) {
    decode_tiles(a.v_code, a.v_tiles, a.tiles, dims / 2, scratch.decoded + dims * kSpanTokens * sizeof(uint16_t), v_decoded);
    form.v.tiles = v_decoded;
  }
  for (int row = 0; row < a.m; row += kRowTile) {
    attention_tile(a, form, row, static_cast<int>(tile_rows(a.m, row)), scratch);
  }
}
