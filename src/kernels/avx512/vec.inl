// The vector vocabulary of generic/*.inl on AVX-512 F/BW/DQ/VL: one register per 16 lanes. Meanings: ref/vec.inl.
//
// Include inside the tier's anonymous namespace.

constexpr int kVectorRegisters = 32;

using V = __m512;
using B = __m512i;
using M = __mmask16;

inline M m_first(int n) {
  return static_cast<M>((1u << n) - 1u);
}

// ---- memory ----
inline V v_load(const float* p) {
  return _mm512_loadu_ps(p);
}
inline void v_store(float* p, V v) {
  _mm512_storeu_ps(p, v);
}
inline V v_load_n(const float* p, int n) {
  return _mm512_maskz_loadu_ps(m_first(n), p);
}
inline void v_store_n(float* p, V v, int n) {
  _mm512_mask_storeu_ps(p, m_first(n), v);
}
inline B b_load(const void* p) {
  return _mm512_loadu_si512(p);
}
inline void b_store(void* p, B b) {
  _mm512_storeu_si512(p, b);
}
inline void prefetch(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1);
}

// ---- sums in double ----
struct D {
  __m512d low, high;
};
using DX = __m512d;
inline D d_zero() {
  return {_mm512_setzero_pd(), _mm512_setzero_pd()};
}
inline D d_widen(const float* p) {
  return {_mm512_cvtps_pd(_mm256_loadu_ps(p)), _mm512_cvtps_pd(_mm256_loadu_ps(p + 8))};
}
inline DX d_broadcast(const float* p) {
  return _mm512_cvtps_pd(_mm256_broadcast_ss(p));
}
inline D d_multiply_add(DX x, D w, D sum) {
  return {_mm512_fmadd_pd(x, w.low, sum.low), _mm512_fmadd_pd(x, w.high, sum.high)};
}
inline V d_narrow(D d) {
  return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(d.low)), _mm512_cvtpd_ps(d.high), 1);
}

// ---- codes of quantised weights ----
inline B b_load_bytes(const void* p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}
// Magnitudes of the codes with exponent 0, which shifting does not decode. The fifth bit of an index is an exponent bit and so 0.
alignas(64) constexpr uint16_t kBf16OfSubnormalE4m3[32] = {0, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60};
// The BF16 values of E4M3 codes in the high bytes of 16-bit words (the low bytes may hold anything), if their exponents are not 0.
inline __m512i bf16_of_high_e4m3(__m512i words) {
  const __m512i shifted = _mm512_and_si512(_mm512_srai_epi16(words, 4), _mm512_set1_epi16(static_cast<int16_t>(0x87f0)));
  return _mm512_add_epi16(shifted, _mm512_set1_epi16(120 << 7));
}
inline __m512i correct_subnormal_e4m3(__m512i words, __m512i values) {
  const __mmask32 subnormal = _mm512_testn_epi16_mask(words, _mm512_set1_epi16(0x7800));
  const __m512i magnitude = _mm512_permutexvar_epi16(_mm512_srli_epi16(words, 8), _mm512_load_si512(kBf16OfSubnormalE4m3));
  return _mm512_mask_mov_epi16(values, subnormal, _mm512_or_si512(magnitude, _mm512_and_si512(words, _mm512_set1_epi16(static_cast<int16_t>(0x8000)))));
}
template <bool kSome>
inline void b_load_e4m3_pairs(const void* p, B* first, B* second) {
  const __m512i high = _mm512_loadu_si512(p);
  const __m512i low = _mm512_slli_epi16(high, 8);
  *first = bf16_of_high_e4m3(low);
  *second = bf16_of_high_e4m3(high);
  if constexpr (kSome) {
    *first = correct_subnormal_e4m3(low, *first);
    *second = correct_subnormal_e4m3(high, *second);
  }
}
// Through FP16, whose conversion takes subnormals whatever MXCSR says: the code's bits there are 2^-8 of its value.
inline V v_load_e4m3(const void* p) {
  const __m256i high = _mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(p))), 8);
  const __m256i halves = _mm256_and_si256(_mm256_srai_epi16(high, 1), _mm256_set1_epi16(static_cast<int16_t>(0xbf80)));
  return _mm512_mul_ps(_mm512_cvtph_ps(halves), _mm512_set1_ps(0x1p8F));
}
// Twice, so that the fifth bit of an index, which belongs to the next code, needs no masking.
alignas(64) constexpr uint16_t kBf16OfE2m1[32] = {
    0,      0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040, 0x4080, 0x40c0, 0x8000, 0xbf00, 0xbf80, 0xbfc0, 0xc000, 0xc040, 0xc080, 0xc0c0,
    0,      0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040, 0x4080, 0x40c0, 0x8000, 0xbf00, 0xbf80, 0xbfc0, 0xc000, 0xc040, 0xc080, 0xc0c0};
inline void b_e2m1_pairs(B words, B (&pairs)[4]) {
  const __m512i values = _mm512_load_si512(kBf16OfE2m1);
  pairs[0] = _mm512_permutexvar_epi16(words, values);
  pairs[1] = _mm512_permutexvar_epi16(_mm512_srli_epi16(words, 4), values);
  pairs[2] = _mm512_permutexvar_epi16(_mm512_srli_epi16(words, 8), values);
  pairs[3] = _mm512_permutexvar_epi16(_mm512_srli_epi16(words, 12), values);
}

// ---- arithmetic ----
inline V v_set(float x) {
  return _mm512_set1_ps(x);
}
inline V v_zero() {
  return _mm512_setzero_ps();
}
inline V v_add(V a, V b) {
  return _mm512_add_ps(a, b);
}
inline V v_sub(V a, V b) {
  return _mm512_sub_ps(a, b);
}
inline V v_mul(V a, V b) {
  return _mm512_mul_ps(a, b);
}
inline V v_div(V a, V b) {
  return _mm512_div_ps(a, b);
}
inline V v_sqrt(V a) {
  return _mm512_sqrt_ps(a);
}
inline V v_fma(V a, V b, V c) {
  return _mm512_fmadd_ps(a, b, c);
}
inline V v_nfma(V a, V b, V c) {
  return _mm512_fnmadd_ps(a, b, c);
}
inline V v_max(V a, V b) {
  return _mm512_max_ps(a, b);
}

// ---- comparisons and selection ----
inline M v_less(V a, V b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}
inline M v_is_nan(V a) {
  return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
}
inline V v_select(M m, V a, V b) {
  return _mm512_mask_blend_ps(m, b, a);
}

// ---- bit patterns ----
inline B v_bits(V v) {
  return _mm512_castps_si512(v);
}
inline V v_from_bits(B b) {
  return _mm512_castsi512_ps(b);
}
inline V v_from_int(B b) {
  return _mm512_cvtepi32_ps(b);
}
inline B b_set(uint32_t x) {
  return _mm512_set1_epi32(static_cast<int>(x));
}
inline B b_add(B a, B b) {
  return _mm512_add_epi32(a, b);
}
inline B b_sub(B a, B b) {
  return _mm512_sub_epi32(a, b);
}
inline B b_and(B a, B b) {
  return _mm512_and_si512(a, b);
}
inline B b_or(B a, B b) {
  return _mm512_or_si512(a, b);
}
template <int kBits>
inline B b_shift_left(B a) {
  return _mm512_slli_epi32(a, kBits);
}
template <int kBits>
inline B b_shift_right(B a) {
  return _mm512_srli_epi32(a, kBits);
}
template <int kBits>
inline B b_shift_right_signed(B a) {
  return _mm512_srai_epi32(a, kBits);
}

// ---- across lanes ----
inline float v_sum(V v) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
inline float v_largest(V v) {
  const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}
inline float v_first(V v) {
  return _mm512_cvtss_f32(v);
}
