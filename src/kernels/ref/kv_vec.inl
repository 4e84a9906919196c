// FP8 codes of KV tiles (sign last, contract.h) as BF16 bits, every code: subnormal ones exact, NaN as NaN, infinity of E5M2 as itself.

struct E4m3Kv {
  static uint32_t bf16(uint32_t code) {
    constexpr uint16_t kSubnormal[8] = {0, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60};
    const uint32_t m = code >> 1;
    return (code & 1u) << 15 | (m < 8 ? kSubnormal[m] : m == 0x7f ? 0x7fc0u : (m << 4) + (120u << 7));
  }
};
struct E5m2Kv {
  static uint32_t bf16(uint32_t code) {
    constexpr uint16_t kSubnormal[4] = {0, 0x3780, 0x3800, 0x3840};
    const uint32_t m = code >> 1;
    return (code & 1u) << 15 | (m < 4 ? kSubnormal[m] : m > 0x7c ? 0x7fc0u : m == 0x7c ? 0x7f80u : (m << 5) + (112u << 7));
  }
};

// The codes of a pair of 16 lanes (32 bytes) as a pair of BF16 values, the even element in the low half.
template <class Code>
inline B b_load_kv_pair(const void* p) {
  const auto* codes = static_cast<const uint8_t*>(p);
  B r;
  for (int j = 0; j < 16; ++j) r.lane[j] = Code::bf16(codes[2 * j]) | Code::bf16(codes[2 * j + 1]) << 16;
  return r;
}
