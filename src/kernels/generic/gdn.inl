// Gated DeltaNet (contract.h): the recurrence of one value head, column block by column block. Columns are independent, so a block of the
// state stays in the first-level cache for all tokens of the call, and one pass over it finishes token t (update) and begins
// token t + 1 (decay, reads with k and q). Roundings and their order are those of four separate passes.
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

// What a token reads of the decayed state.
template <int N>
struct GdnReads {
  QuadSum<N> k;
  QuadSum<N> q;
};

struct GdnToken {
  const float* k;
  const float* q;
  V decay;
};

// kUpdate: S += k d, of the token before. kRead: S = decay * S of `token`, and its reads. Reads `from`, writes `to`.
template <int N, bool kUpdate, bool kRead>
inline void gdn_pass(GdnBlock from, GdnBlock to, int key_dim, const float* k, const V (&d)[N], const GdnToken& token,
                     GdnReads<N>& reads) {
  if constexpr (kRead) {
    reads.k.clear();
    reads.q.clear();
  }
  const auto row = [&](int i, int c) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      V s = v_load(from.rows + static_cast<size_t>(i) * from.stride + n * kLanes);
      if constexpr (kUpdate) s = v_fma(v_set(k[i]), d[n], s);
      if constexpr (kRead) {
        s = v_mul(s, token.decay);
        reads.k.chain[c][n] = v_fma(v_set(token.k[i]), s, reads.k.chain[c][n]);
        reads.q.chain[c][n] = v_fma(v_set(token.q[i]), s, reads.q.chain[c][n]);
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

// Lane sum of a[i] * b[i].
inline float lane_dot(const float* a, const float* b, int n) {
  V sum = v_zero();
  for (int i = 0; i < n; i += kLanes) {
    const int count = n - i < kLanes ? n - i : kLanes;
    sum = v_fma(v_load_n(a + i, count), v_load_n(b + i, count), sum);
  }
  return v_sum(sum);
}

template <int N>
void gdn_columns(const GdnArgs& a, int column, float* buffer) {
  const GdnBlock state{a.state + column, a.value_stride};
  const bool fits = static_cast<size_t>(a.key_dim) * N * kLanes <= kGdnBlockFloats;
  const GdnBlock block = fits ? GdnBlock{buffer, static_cast<size_t>(N * kLanes)} : state;
  const auto token = [&a](int t) {
    const auto at = static_cast<size_t>(t);
    return GdnToken{a.k + at * a.ldk, a.q + at * a.ldq, v_set(a.decay[at * a.ld_decay])};
  };
  GdnReads<N> reads;
  V d[N];
  GdnToken now = token(0);
  gdn_pass<N, false, true>(state, block, a.key_dim, nullptr, d, now, reads);
  for (int t = 0; t < a.tokens; ++t) {
    const size_t at = static_cast<size_t>(t);
    const V beta = v_set(a.beta[at * a.ld_beta]);
    const V qk = v_set(lane_dot(now.q, now.k, a.key_dim));
    for (int n = 0; n < N; ++n) {
      const int left = a.value_dim - (column + n * kLanes);
      const int count = left < 0 ? 0 : left < kLanes ? left : kLanes;
      d[n] = v_mul(v_sub(v_load_n(a.v + at * a.ldv + (column + n * kLanes), count), reads.k.total(n)), beta);
      v_store_n(a.out + at * a.ldo + (column + n * kLanes), v_fma(qk, d[n], reads.q.total(n)), count);
    }
    const float* k = now.k;
    if (t + 1 < a.tokens) {
      now = token(t + 1);
      gdn_pass<N, true, true>(block, block, a.key_dim, k, d, now, reads);
    } else {
      gdn_pass<N, true, false>(block, state, a.key_dim, k, d, now, reads);
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
