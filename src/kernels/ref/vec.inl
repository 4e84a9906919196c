// The vector vocabulary of generic/*.inl in plain C: 16 lanes as arrays. This is the definition that the other tiers' vec.inl
// reproduce with instructions. It is written for any architecture; fmaf of the C library rounds once whatever the CPU.
//
//   V 16 floats · B their 16 bit patterns · M one truth value per lane
//
// Include inside the tier's anonymous namespace.

constexpr int kVectorRegisters = 0;  // nothing to tune for

struct V {
  float lane[16];
};
struct B {
  uint32_t lane[16];
};
struct M {
  bool lane[16];
};

#define STERLING_EACH_LANE \
  for (int j = 0; j < 16; ++j) r.lane[j]

// ---- memory ----
inline V v_load(const float* p) {
  V r;
  __builtin_memcpy(r.lane, p, sizeof r.lane);
  return r;
}
inline void v_store(float* p, V v) {
  __builtin_memcpy(p, v.lane, sizeof v.lane);
}
// The first n lanes, 0 ≤ n ≤ 16; the others are +0 and not touched in memory.
inline V v_load_n(const float* p, int n) {
  V r;
  STERLING_EACH_LANE = j < n ? p[j] : 0.0f;
  return r;
}
inline void v_store_n(float* p, V v, int n) {
  for (int j = 0; j < n; ++j) p[j] = v.lane[j];
}
inline B b_load(const void* p) {
  B r;
  __builtin_memcpy(r.lane, p, sizeof r.lane);
  return r;
}
inline void b_store(void* p, B b) {
  __builtin_memcpy(p, b.lane, sizeof b.lane);
}
inline void prefetch(const void*) {}

// ---- sums in double ----
struct D {
  double lane[16];
};
using DX = double;  // one number for all lanes
inline D d_zero() { return {}; }
inline D d_widen(const float* p) {
  D r;
  STERLING_EACH_LANE = static_cast<double>(p[j]);
  return r;
}
inline DX d_broadcast(const float* p) { return static_cast<double>(*p); }
// x * w + sum. x and w are FP32 numbers, so their product is exact and fusing does not show.
inline D d_multiply_add(DX x, D w, D sum) {
  D r;
  STERLING_EACH_LANE = x * w.lane[j] + sum.lane[j];
  return r;
}
// Rounded to nearest even.
inline V d_narrow(D d) {
  V r;
  STERLING_EACH_LANE = static_cast<float>(d.lane[j]);
  return r;
}

// ---- codes of quantised weights ----
// 16 bytes, one per lane.
inline B b_load_bytes(const void* p) {
  B r;
  STERLING_EACH_LANE = static_cast<const uint8_t*>(p)[j];
  return r;
}
// The BF16 bits of an E4M3 code, exact for subnormal codes too. (The two NaN codes never arrive; they would read as ±480.)
inline uint32_t bf16_of_e4m3(uint32_t code) {
  constexpr uint16_t kSubnormal[8] = {0, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60};
  const uint32_t magnitude = code & 0x7fu;
  return (code & 0x80u) << 8 | (magnitude < 8 ? kSubnormal[magnitude] : (magnitude << 4) + (120u << 7));
}
inline uint32_t bf16_of_e2m1(uint32_t code) {
  constexpr uint16_t kMagnitude[8] = {0, 0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040, 0x4080, 0x40c0};
  return (code & 8u) << 12 | kMagnitude[code & 7u];
}
// A line of E4M3 codes (contract.h) as its two BF16 pairs, the even element in the low half.
// kSome: some may have exponent 0. (Here that makes no difference.)
template <bool kSome>
inline void b_load_e4m3_pairs(const void* p, B* first, B* second) {
  const auto* codes = static_cast<const uint8_t*>(p);
  for (int j = 0; j < 16; ++j) {
    first->lane[j] = bf16_of_e4m3(codes[4 * j]) | bf16_of_e4m3(codes[4 * j + 2]) << 16;
    second->lane[j] = bf16_of_e4m3(codes[4 * j + 1]) | bf16_of_e4m3(codes[4 * j + 3]) << 16;
  }
}
// 16 E4M3 codes, one per lane, in FP32.
inline V v_load_e4m3(const void* p) {
  B bits;
  for (int j = 0; j < 16; ++j) bits.lane[j] = bf16_of_e4m3(static_cast<const uint8_t*>(p)[j]) << 16;
  V r;
  __builtin_memcpy(r.lane, bits.lane, sizeof r.lane);
  return r;
}
// A block of E2M1 codes (contract.h) as its four BF16 pairs.
inline void b_e2m1_pairs(B words, B (&pairs)[4]) {
  for (int i = 0; i < 4; ++i) {
    B r;
    STERLING_EACH_LANE = bf16_of_e2m1(words.lane[j] >> (4 * i)) | bf16_of_e2m1(words.lane[j] >> (16 + 4 * i)) << 16;
    pairs[i] = r;
  }
}

// ---- arithmetic, each operation rounds once ----
inline V v_set(float x) {
  V r;
  STERLING_EACH_LANE = x;
  return r;
}
inline V v_zero() {
  return v_set(0.0f);
}
inline V v_add(V a, V b) {
  V r;
  STERLING_EACH_LANE = a.lane[j] + b.lane[j];
  return r;
}
inline V v_sub(V a, V b) {
  V r;
  STERLING_EACH_LANE = a.lane[j] - b.lane[j];
  return r;
}
inline V v_mul(V a, V b) {
  V r;
  STERLING_EACH_LANE = a.lane[j] * b.lane[j];
  return r;
}
inline V v_div(V a, V b) {
  V r;
  STERLING_EACH_LANE = a.lane[j] / b.lane[j];
  return r;
}
inline V v_sqrt(V a) {
  V r;
  STERLING_EACH_LANE = __builtin_sqrtf(a.lane[j]);
  return r;
}
// a * b + c
inline V v_fma(V a, V b, V c) {
  V r;
  STERLING_EACH_LANE = __builtin_fmaf(a.lane[j], b.lane[j], c.lane[j]);
  return r;
}
// -(a * b) + c
inline V v_nfma(V a, V b, V c) {
  V r;
  STERLING_EACH_LANE = __builtin_fmaf(-a.lane[j], b.lane[j], c.lane[j]);
  return r;
}
// a > b ? a : b, as the x86 instruction: the second operand when either is NaN or both are zero.
inline V v_max(V a, V b) {
  V r;
  STERLING_EACH_LANE = a.lane[j] > b.lane[j] ? a.lane[j] : b.lane[j];
  return r;
}

// ---- comparisons and selection ----
inline M v_less(V a, V b) {
  M r;
  STERLING_EACH_LANE = a.lane[j] < b.lane[j];
  return r;
}
inline M v_is_nan(V a) {
  M r;
  STERLING_EACH_LANE = a.lane[j] != a.lane[j];
  return r;
}
inline M m_first(int n) {
  M r;
  STERLING_EACH_LANE = j < n;
  return r;
}
// m ? a : b
inline V v_select(M m, V a, V b) {
  V r;
  STERLING_EACH_LANE = m.lane[j] ? a.lane[j] : b.lane[j];
  return r;
}

// ---- bit patterns ----
inline B v_bits(V v) {
  B r;
  __builtin_memcpy(r.lane, v.lane, sizeof r.lane);
  return r;
}
inline V v_from_bits(B b) {
  V r;
  __builtin_memcpy(r.lane, b.lane, sizeof r.lane);
  return r;
}
// Signed integers to floats.
inline V v_from_int(B b) {
  V r;
  STERLING_EACH_LANE = static_cast<float>(static_cast<int32_t>(b.lane[j]));
  return r;
}
inline B b_set(uint32_t x) {
  B r;
  STERLING_EACH_LANE = x;
  return r;
}
inline B b_add(B a, B b) {
  B r;
  STERLING_EACH_LANE = a.lane[j] + b.lane[j];
  return r;
}
inline B b_sub(B a, B b) {
  B r;
  STERLING_EACH_LANE = a.lane[j] - b.lane[j];
  return r;
}
inline B b_and(B a, B b) {
  B r;
  STERLING_EACH_LANE = a.lane[j] & b.lane[j];
  return r;
}
inline B b_or(B a, B b) {
  B r;
  STERLING_EACH_LANE = a.lane[j] | b.lane[j];
  return r;
}
template <int kBits>
inline B b_shift_left(B a) {
  B r;
  STERLING_EACH_LANE = a.lane[j] << kBits;
  return r;
}
template <int kBits>
inline B b_shift_right(B a) {
  B r;
  STERLING_EACH_LANE = a.lane[j] >> kBits;
  return r;
}
// Arithmetic: the sign comes in from the left.
template <int kBits>
inline B b_shift_right_signed(B a) {
  B r;
  STERLING_EACH_LANE = static_cast<uint32_t>(static_cast<int32_t>(a.lane[j]) >> kBits);
  return r;
}

// ---- across lanes: lane j meets lane j + 8, then j + 4, j + 2, j + 1 ----
inline float v_sum(V v) {
  for (int half = 8; half > 0; half /= 2) {
    for (int j = 0; j < half; ++j) v.lane[j] = v.lane[j] + v.lane[j + half];
  }
  return v.lane[0];
}
inline float v_largest(V v) {
  for (int half = 8; half > 0; half /= 2) {
    for (int j = 0; j < half; ++j) v.lane[j] = v.lane[j] > v.lane[j + half] ? v.lane[j] : v.lane[j + half];
  }
  return v.lane[0];
}
inline float v_first(V v) {
  return v.lane[0];
}

#undef STERLING_EACH_LANE
