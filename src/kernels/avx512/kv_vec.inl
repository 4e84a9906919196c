// FP8 codes of KV tiles as BF16 values. Meanings: ref/kv_vec.inl.

// One multiplication shifts a code twice: exponent and mantissa go where BF16 has them, and the sign, which is last, to the top. That is wrong
// for codes whose exponent is 0 and for those without a number; they are neighbours when codes count round (…, NaN, 0, smallest, …), so that
// one comparison finds both, and the low five bits of a code find its value in a table.
struct E4m3Kv {
  static constexpr int kShift = 0x8008;
  static constexpr int kKept = 0x87f0;
  static constexpr int kBias = 120 << 7;
  static constexpr int kBefore = 2;    // codes without a number
  static constexpr int kSpecial = 18;  // with those of exponent 0
  alignas(64) static constexpr uint16_t kTable[32] = {
      0,      0x8000, 0x3b00, 0xbb00, 0x3b80, 0xbb80, 0x3bc0, 0xbbc0, 0x3c00, 0xbc00, 0x3c20, 0xbc20, 0x3c40, 0xbc40, 0x3c60, 0xbc60,
      0,      0,      0,      0,      0,      0,      0,      0,      0,      0,      0,      0,      0,      0,      0x7fc0, 0xffc0};
};
struct E5m2Kv {
  static constexpr int kShift = 0x8010;
  static constexpr int kKept = 0x8fe0;
  static constexpr int kBias = 112 << 7;
  static constexpr int kBefore = 8;
  static constexpr int kSpecial = 16;
  alignas(64) static constexpr uint16_t kTable[32] = {
      0, 0x8000, 0x3780, 0xb780, 0x3800, 0xb800, 0x3840, 0xb840, 0,      0,      0,      0,      0,      0,      0,      0,
      0, 0,      0,      0,      0,      0,      0,      0,      0x7f80, 0xff80, 0x7fc0, 0xffc0, 0x7fc0, 0xffc0, 0x7fc0, 0xffc0};
};

template <class Code>
inline B b_load_kv_pair(const void* p) {
  const __m256i bytes = _mm256_loadu_si256(static_cast<const __m256i*>(p));
  const __m512i codes = _mm512_cvtepu8_epi16(bytes);
  __m512i shifted;
  // As an instruction: compilers take a product with a known constant apart into more shifts than it saves.
  asm("vpmullw %2, %1, %0" : "=v"(shifted) : "v"(codes), "v"(_mm512_set1_epi16(static_cast<int16_t>(Code::kShift))));
  const __m512i normal = _mm512_add_epi16(_mm512_and_si512(shifted, _mm512_set1_epi16(static_cast<int16_t>(Code::kKept))),
                                          _mm512_set1_epi16(static_cast<int16_t>(Code::kBias)));
  const __mmask32 special = _mm256_cmplt_epu8_mask(_mm256_add_epi8(bytes, _mm256_set1_epi8(static_cast<char>(Code::kBefore))),
                                                   _mm256_set1_epi8(static_cast<char>(Code::kSpecial)));
  return _mm512_mask_permutexvar_epi16(normal, special, codes, _mm512_load_si512(Code::kTable));
}
