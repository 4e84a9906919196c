// FP8 codes of KV tiles as BF16 values. Meanings: ref/kv_vec.inl. One multiplication shifts a code twice: exponent and mantissa go where
// BF16 has them, and the sign, which is last, to the top.

struct E4m3Kv {
  static constexpr int kShift = 0x8008;
  static constexpr int kKept = 0x07f0;
  static constexpr int kBias = 120 << 7;
  static constexpr int kMantissas = 14;  // twice the mantissa, in a code of exponent 0
  static constexpr int kSpecial = 0x07f0;  // from here on: no number
  static __m128i small() { return _mm_setr_epi16(0, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60); }
  static __m256i not_numbers() { return _mm256_set1_epi16(0x7fc0); }
};
struct E5m2Kv {
  static constexpr int kShift = 0x8010;
  static constexpr int kKept = 0x0fe0;
  static constexpr int kBias = 112 << 7;
  static constexpr int kMantissas = 6;
  static constexpr int kSpecial = 0x0f80;
  static __m128i small() { return _mm_setr_epi16(0, 0x3780, 0x3800, 0x3840, 0, 0, 0, 0); }
  // The exponent: infinity keeps its mantissa of 0.
  static __m256i not_numbers() { return _mm256_set1_epi16(0x7f80); }
};

template <class Code>
inline __m256i bf16_of_kv(__m128i bytes) {
  const __m256i codes = _mm256_cvtepu8_epi16(bytes);
  const __m256i shifted = _mm256_mullo_epi16(codes, _mm256_set1_epi16(static_cast<int16_t>(Code::kShift)));
  const __m256i bits = _mm256_and_si256(shifted, _mm256_set1_epi16(Code::kKept));
  __m256i normal = _mm256_add_epi16(bits, _mm256_set1_epi16(Code::kBias));
  const __m256i special = _mm256_cmpgt_epi16(bits, _mm256_set1_epi16(Code::kSpecial - 1));
  normal = _mm256_or_si256(normal, _mm256_and_si256(special, Code::not_numbers()));
  // Exponent 0: byte indices 2m and 2m + 1 of a table.
  const __m256i twice = _mm256_and_si256(codes, _mm256_set1_epi16(Code::kMantissas));
  const __m256i index = _mm256_add_epi16(_mm256_mullo_epi16(twice, _mm256_set1_epi16(0x0101)), _mm256_set1_epi16(0x0100));
  const __m256i subnormal = _mm256_cmpgt_epi16(_mm256_set1_epi16(0x0080), bits);
  const __m256i magnitude = _mm256_blendv_epi8(normal, _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(Code::small()), index), subnormal);
  return _mm256_or_si256(magnitude, _mm256_and_si256(shifted, _mm256_set1_epi16(static_cast<int16_t>(0x8000))));
}
template <class Code>
inline B b_load_kv_pair(const void* p) {
  const auto* q = static_cast<const __m128i_u*>(p);
  return {bf16_of_kv<Code>(_mm_loadu_si128(q)), bf16_of_kv<Code>(_mm_loadu_si128(q + 1))};
}
