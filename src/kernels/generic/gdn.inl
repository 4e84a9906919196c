// Gated DeltaNet (contract.h): the recurrence of one value head, column block by column block. Columns are independent, so a block of the
// state stays in the first-level cache for all tokens of the call, and one pass over it finishes token t (update, read with q) and begins
// token t + 1 (decay, read with k). Roundings and their order are those of four separate passes.
//
// The block is copied out of the state: in place its rows lie value_stride apart, which maps them onto a few cache sets.

constexpr int kGdnVectors = kVectorRegisters >= 32 ? 2 : 1;  // columns of a block, in vectors: 8 sums each
constexpr int kGdnBlockFloats = 8192;                          // room for key_dim x columns: 32 KiB

struct GdnBlock {
  float* rows;    // row i at rows + i * stride
  size_t stride;
};

// The four chains of a quad sum.
template <int N>
struct QuadSum {
  V chain[4][N];

  void clear() {
    for (auto& c : chain) {
      for (V& v : c) v = v_zero();
    }
  }
  V total(int n) const { return v_add(v_add(chain[0][n], chain[1][n]), v_add(chain[2][n], chain[3][n])); }
};

// S = decay * S and r = quad sum of k and S. Reads `from`, writes `to`.
template <int N>
inline void gdn_first_read(GdnBlock from, GdnBlock to, int key_dim, const float* k, V decay, QuadSum<N>& r) {
  r.clear();
  const auto row = [&](int i, int c) __attribute__((always_inline)) {
    const V ki = v_set(k[i]);
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      const V s = v_mul(v_load(from.rows + static_cast<size_t>(i) * from.stride + n * kLanes), decay);
      v_store(to.rows + static_cast<size_t>(i) * to.stride + n * kLanes, s);
      r.chain[c][n] = v_fma(ki, s, r.chain[c][n]);
    }
  };
  int i = 0;
  for (; i + 4 <= key_dim; i += 4) {
    row(i, 0);
    row(i + 1, 1);
    row(i + 2, 2);
    row(i + 3, 3);
  }
  for (int c = 0; i < key_dim; ++i, ++c) row(i, c);
}

// S += k d and o = quad sum of q and S; with kNext then S = next_decay * S and r = quad sum of next_k and S.
template <int N, bool kNext>
inline void gdn_update(GdnBlock from, GdnBlock to, int key_dim, const float* k, const V (&d)[N], const float* q, QuadSum<N>& o,
                       const float* next_k, V next_decay, QuadSum<N>& r) {
  o.clear();
  if constexpr (kNext) r.clear();
  const auto row = [&](int i, int c) __attribute__((always_inline)) {
    const V ki = v_set(k[i]);
    const V qi = v_set(q[i]);
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      V s = v_fma(ki, d[n], v_load(from.rows + static_cast<size_t>(i) * from.stride + n * kLanes));
      o.chain[c][n] = v_fma(qi, s, o.chain[c][n]);
      if constexpr (kNext) {
        s = v_mul(s, next_decay);
        r.chain[c][n] = v_fma(v_set(next_k[i]), s, r.chain[c][n]);
      }
      v_store(to.rows + static_cast<size_t>(i) * to.stride + n * kLanes, s);
    }
  };
  int i = 0;
  for (; i + 4 <= key_dim; i += 4) {
    row(i, 0);
    row(i + 1, 1);
    row(i + 2, 2);
    row(i + 3, 3);
  }
  for (int c = 0; i < key_dim; ++i, ++c) row(i, c);
}

template <int N>
void gdn_columns(const GdnArgs& a, int column, float* buffer) {
  const GdnBlock state{a.state + column, a.value_stride};
  const bool fits = static_cast<size_t>(a.key_dim) * N * kLanes <= kGdnBlockFloats;
  const GdnBlock block = fits ? GdnBlock{buffer, static_cast<size_t>(N * kLanes)} : state;
  QuadSum<N> r;
  QuadSum<N> o;
  gdn_first_read<N>(state, block, a.key_dim, a.k, v_set(a.decay[0]), r);
  for (int t = 0; t < a.tokens; ++t) {
    const size_t at = static_cast<size_t>(t);
    const float* k = a.k + at * a.ldk;
    const float* q = a.q + at * a.ldq;
    const V beta = v_set(a.beta[at * a.ld_beta]);
    V d[N];
    for (int n = 0; n < N; ++n) {
      const int left = a.value_dim - (column + n * kLanes);
      const int count = left < 0 ? 0 : left < kLanes ? left : kLanes;
      d[n] = v_mul(v_sub(v_load_n(a.v + at * a.ldv + (column + n * kLanes), count), r.total(n)), beta);
    }
    if (t + 1 < a.tokens) {
      gdn_update<N, true>(block, block, a.key_dim, k, d, q, o, k + a.ldk, v_set(a.decay[(at + 1) * a.ld_decay]), r);
    } else {
      gdn_update<N, false>(block, state, a.key_dim, k, d, q, o, nullptr, v_zero(), r);
    }
    for (int n = 0; n < N; ++n) {
      const int left = a.value_dim - (column + n * kLanes);
      const int count = left < 0 ? 0 : left < kLanes ? left : kLanes;
      v_store_n(a.out + at * a.ldo + (column + n * kLanes), o.total(n), count);
    }
  }
}

void gdn(const GdnArgs* args) {
  const GdnArgs& a = *args;
  if (a.tokens <= 0) return;
  alignas(64) float buffer[kGdnBlockFloats];
  int column = 0;
  for (; column + kGdnVectors * kLanes <= static_cast<int>(a.value_stride); column += kGdnVectors * kLanes) {
    gdn_columns<kGdnVectors>(a, column, buffer);
  }
  for (; column < static_cast<int>(a.value_stride); column += kLanes) gdn_columns<1>(a, column, buffer);
}
