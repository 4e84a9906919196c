// The vector vocabulary of generic/*.inl on AVX2 and FMA: two registers per 16 lanes. Meanings: ref/vec.inl.
//
// Include inside the tier's anonymous namespace.

constexpr int kVectorRegisters = 16;

struct V {
  __m256 low, high;
};
struct B {
  __m256i low, high;
};
struct M {
  __m256 low, high;  // all ones or all zeros per lane
};

// Lanes [0, n) of a half on, n may lie outside 0 … 8.
inline __m256i first_of_half(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline M m_first(int n) {
  return {_mm256_castsi256_ps(first_of_half(n)), _mm256_castsi256_ps(first_of_half(n - 8))};
}

// ---- memory ----
inline V v_load(const float* p) {
  return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
inline void v_store(float* p, V v) {
  _mm256_storeu_ps(p, v.low);
  _mm256_storeu_ps(p + 8, v.high);
}
inline V v_load_n(const float* p, int n) {
  if (n >= 16) return v_load(p);
  if (n >= 8) return {_mm256_loadu_ps(p), _mm256_maskload_ps(p + 8, first_of_half(n - 8))};
  return {_mm256_maskload_ps(p, first_of_half(n)), _mm256_setzero_ps()};
}
inline void v_store_n(float* p, V v, int n) {
  if (n >= 8) {
    _mm256_storeu_ps(p, v.low);
    if (n > 8) _mm256_maskstore_ps(p + 8, first_of_half(n - 8), v.high);
  } else if (n > 0) {
    _mm256_maskstore_ps(p, first_of_half(n), v.low);
  }
}
inline B b_load(const void* p) {
  const auto* q = static_cast<const __m256i_u*>(p);
  return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}
inline void b_store(void* p, B b) {
  auto* q = static_cast<__m256i_u*>(p);
  _mm256_storeu_si256(q, b.low);
  _mm256_storeu_si256(q + 1, b.high);
}
inline void prefetch(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
}

// ---- sums in double ----
struct D {
  __m256d part[4];
};
using DX = __m256d;
inline D d_zero() {
  const __m256d zero = _mm256_setzero_pd();
  return {{zero, zero, zero, zero}};
}
inline D d_widen(const float* p) {
  return {{_mm256_cvtps_pd(_mm_loadu_ps(p)), _mm256_cvtps_pd(_mm_loadu_ps(p + 4)), _mm256_cvtps_pd(_mm_loadu_ps(p + 8)),
           _mm256_cvtps_pd(_mm_loadu_ps(p + 12))}};
}
inline DX d_broadcast(const float* p) {
  return _mm256_cvtps_pd(_mm_broadcast_ss(p));
}
inline D d_multiply_add(DX x, D w, D sum) {
  return {{_mm256_fmadd_pd(x, w.part[0], sum.part[0]), _mm256_fmadd_pd(x, w.part[1], sum.part[1]),
           _mm256_fmadd_pd(x, w.part[2], sum.part[2]), _mm256_fmadd_pd(x, w.part[3], sum.part[3])}};
}
inline V d_narrow(D d) {
  return {_mm256_set_m128(_mm256_cvtpd_ps(d.part[1]), _mm256_cvtpd_ps(d.part[0])),
          _mm256_set_m128(_mm256_cvtpd_ps(d.part[3]), _mm256_cvtpd_ps(d.part[2]))};
}

// ---- codes of quantised weights ----
inline B b_load_bytes(const void* p) {
  const auto* q = static_cast<const __m128i_u*>(p);
  const __m128i bytes = _mm_loadu_si128(q);
  return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
}
// The BF16 values of E4M3 codes in the high bytes of 16-bit words (the low bytes may hold anything), if their exponents are not 0.
inline __m256i bf16_of_high_e4m3(__m256i words) {
  const __m256i shifted = _mm256_and_si256(_mm256_srai_epi16(words, 4), _mm256_set1_epi16(static_cast<int16_t>(0x87f0)));
  return _mm256_add_epi16(shifted, _mm256_set1_epi16(120 << 7));
}
// Corrects those whose exponents are 0.
inline __m256i correct_subnormal_e4m3(__m256i words, __m256i values) {
  // By mantissa.
  const __m256i small = _mm256_broadcastsi128_si256(
      _mm_setr_epi16(0, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60));
  // Byte indices 2m and 2m + 1.
  const __m256i twice = _mm256_and_si256(_mm256_srli_epi16(words, 7), _mm256_set1_epi16(14));
  const __m256i index = _mm256_add_epi16(_mm256_or_si256(twice, _mm256_slli_epi16(twice, 8)), _mm256_set1_epi16(0x0100));
  const __m256i signs = _mm256_and_si256(words, _mm256_set1_epi16(static_cast<int16_t>(0x8000)));
  const __m256i subnormal = _mm256_cmpeq_epi16(_mm256_and_si256(words, _mm256_set1_epi16(0x7800)), _mm256_setzero_si256());
  return _mm256_blendv_epi8(values, _mm256_or_si256(_mm256_shuffle_epi8(small, index), signs), subnormal);
}
template <bool kSome>
inline void b_load_e4m3_pairs(const void* p, B* first, B* second) {
  const B high = b_load(p);
  const B low = {_mm256_slli_epi16(high.low, 8), _mm256_slli_epi16(high.high, 8)};
  *first = {bf16_of_high_e4m3(low.low), bf16_of_high_e4m3(low.high)};
  *second = {bf16_of_high_e4m3(high.low), bf16_of_high_e4m3(high.high)};
  if constexpr (kSome) {
    *first = {correct_subnormal_e4m3(low.low, first->low), correct_subnormal_e4m3(low.high, first->high)};
    *second = {correct_subnormal_e4m3(high.low, second->low), correct_subnormal_e4m3(high.high, second->high)};
  }
}
inline V v_load_e4m3(const void* p) {
  const __m128i codes = _mm_loadu_si128(static_cast<const __m128i*>(p));
  const __m256i low = _mm256_cvtepu8_epi32(codes);
  const __m256i high = _mm256_cvtepu8_epi32(_mm_srli_si128(codes, 8));
  const __m256i bias = _mm256_set1_epi32(120 << 23);
  V values = {_mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(low, 20), bias)),
              _mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(high, 20), bias))};
  // A sign, or an exponent of 0: neither is common among scales.
  const __m128i small = _mm_cmpeq_epi8(_mm_and_si128(codes, _mm_set1_epi8(0x78)), _mm_setzero_si128());
  if (__builtin_expect(_mm_movemask_epi8(_mm_or_si128(small, codes)) != 0, 0)) {
    const __m128i zero = _mm_setzero_si128();
    const __m256i words = _mm256_set_m128i(_mm_unpackhi_epi8(zero, codes), _mm_unpacklo_epi8(zero, codes));
    const __m256i halves = correct_subnormal_e4m3(words, bf16_of_high_e4m3(words));
    values = {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm256_castsi256_si128(halves)), 16)),
              _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm256_extracti128_si256(halves, 1)), 16))};
  }
  return values;
}
// Codes in the low halves of the bytes of each 16-bit word: the value of the first byte's code, and of the second's.
inline void bf16_of_e2m1(__m256i codes, __m256i* first, __m256i* second) {
  const __m256i low_bytes = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 0, -128, -64, 0, 64, -128, -64, 0, 0, -128, -64, 0, 64, -128, -64));
  const __m256i high_bytes = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 0x3f, 0x3f, 0x3f, 0x40, 0x40, 0x40, 0x40, -128, -65, -65, -65, -64, -64, -64, -64));
  const __m256i low = _mm256_shuffle_epi8(low_bytes, codes);
  const __m256i high = _mm256_shuffle_epi8(high_bytes, codes);
  *first = _mm256_or_si256(_mm256_and_si256(low, _mm256_set1_epi16(0x00ff)), _mm256_slli_epi16(high, 8));
  *second = _mm256_or_si256(_mm256_srli_epi16(low, 8), _mm256_and_si256(high, _mm256_set1_epi16(static_cast<int16_t>(0xff00))));
}
inline void b_e2m1_pairs(B words, B (&pairs)[4]) {
  const __m256i nibble = _mm256_set1_epi8(15);
  bf16_of_e2m1(_mm256_and_si256(words.low, nibble), &pairs[0].low, &pairs[2].low);
  bf16_of_e2m1(_mm256_and_si256(words.high, nibble), &pairs[0].high, &pairs[2].high);
  bf16_of_e2m1(_mm256_and_si256(_mm256_srli_epi16(words.low, 4), nibble), &pairs[1].low, &pairs[3].low);
  bf16_of_e2m1(_mm256_and_si256(_mm256_srli_epi16(words.high, 4), nibble), &pairs[1].high, &pairs[3].high);
}

// ---- arithmetic ----
inline V v_set(float x) {
  const __m256 both = _mm256_set1_ps(x);
  return {both, both};
}
inline V v_zero() {
  return {_mm256_setzero_ps(), _mm256_setzero_ps()};
}
inline V v_add(V a, V b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
inline V v_sub(V a, V b) {
  return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
inline V v_mul(V a, V b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
inline V v_div(V a, V b) {
  return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
inline V v_sqrt(V a) {
  return {_mm256_sqrt_ps(a.low), _mm256_sqrt_ps(a.high)};
}
inline V v_fma(V a, V b, V c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
inline V v_nfma(V a, V b, V c) {
  return {_mm256_fnmadd_ps(a.low, b.low, c.low), _mm256_fnmadd_ps(a.high, b.high, c.high)};
}
inline V v_max(V a, V b) {
  return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}

// ---- comparisons and selection ----
inline M v_less(V a, V b) {
  return {_mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ), _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ)};
}
inline M v_is_nan(V a) {
  return {_mm256_cmp_ps(a.low, a.low, _CMP_UNORD_Q), _mm256_cmp_ps(a.high, a.high, _CMP_UNORD_Q)};
}
inline V v_select(M m, V a, V b) {
  return {_mm256_blendv_ps(b.low, a.low, m.low), _mm256_blendv_ps(b.high, a.high, m.high)};
}

// ---- bit patterns ----
inline B v_bits(V v) {
  return {_mm256_castps_si256(v.low), _mm256_castps_si256(v.high)};
}
inline V v_from_bits(B b) {
  return {_mm256_castsi256_ps(b.low), _mm256_castsi256_ps(b.high)};
}
inline V v_from_int(B b) {
  return {_mm256_cvtepi32_ps(b.low), _mm256_cvtepi32_ps(b.high)};
}
inline B b_set(uint32_t x) {
  const __m256i both = _mm256_set1_epi32(static_cast<int>(x));
  return {both, both};
}
inline B b_add(B a, B b) {
  return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
}
inline B b_sub(B a, B b) {
  return {_mm256_sub_epi32(a.low, b.low), _mm256_sub_epi32(a.high, b.high)};
}
inline B b_and(B a, B b) {
  return {_mm256_and_si256(a.low, b.low), _mm256_and_si256(a.high, b.high)};
}
inline B b_or(B a, B b) {
  return {_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)};
}
template <int kBits>
inline B b_shift_left(B a) {
  return {_mm256_slli_epi32(a.low, kBits), _mm256_slli_epi32(a.high, kBits)};
}
template <int kBits>
inline B b_shift_right(B a) {
  return {_mm256_srli_epi32(a.low, kBits), _mm256_srli_epi32(a.high, kBits)};
}
template <int kBits>
inline B b_shift_right_signed(B a) {
  return {_mm256_srai_epi32(a.low, kBits), _mm256_srai_epi32(a.high, kBits)};
}

// ---- across lanes ----
inline float v_sum(V v) {
  const __m256 eight = _mm256_add_ps(v.low, v.high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
inline float v_largest(V v) {
  const __m256 eight = _mm256_max_ps(v.low, v.high);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}
inline float v_first(V v) {
  return _mm256_cvtss_f32(v.low);
}
