// Elementary functions on V. Own, because the C library's pick a variant by CPU; the bounds were measured over every
// float against double and are held by math_test.cc on a sample. Under FTZ/DAZ, which the contract demands.
//
// Polynomial coefficients: Remez fits of the reduced function at 200 bits, rounded to FP32.

constexpr float kInfinity = __builtin_inff();
constexpr float kSmallestNormal = 0x1p-126f;

// To BF16 precision, nearest even, in FP32 form; subnormals become zero with their sign, NaN a quiet NaN.
inline V v_round_bf16(V x) {
  const B bits = v_bits(x);
  const B odd = b_and(b_shift_right<16>(bits), b_set(1));
  const B rounded = b_and(b_add(bits, b_add(odd, b_set(0x7fff))), b_set(0xffff0000u));
  const B quiet = b_and(b_or(bits, b_set(0x00400000u)), b_set(0xffff0000u));
  const V magnitude = v_from_bits(b_and(bits, b_set(0x7fffffffu)));
  const V sign = v_from_bits(b_and(bits, b_set(0x80000000u)));
  const V normal = v_select(v_less(magnitude, v_set(kSmallestNormal)), sign, v_from_bits(rounded));
  return v_select(v_is_nan(x), v_from_bits(quiet), normal);
}

// e^x = 2^n * e^r, n = round(x / ln 2), |r| <= ln 2 / 2, e^r = 1 + (r + r² q(r)). Within 1.01 ulp. Results below 2^-126 are zero,
// above FLT_MAX infinity.
inline V v_exp(V x) {
  const V shift = v_set(0x1.8p23f);  // adding it leaves the rounded integer in the low mantissa bits
  const V shifted = v_fma(x, v_set(0x1.715476p+0f), shift);
  const V n = v_sub(shifted, shift);
  V r = v_nfma(n, v_set(0x1.62e43p-1f), x);
  r = v_nfma(n, v_set(-0x1.05c610p-29f), r);
  V q = v_set(0x1.6a2434p-10f);
  q = v_fma(q, r, v_set(0x1.1239e2p-7f));
  q = v_fma(q, r, v_set(0x1.5558f2p-5f));
  q = v_fma(q, r, v_set(0x1.555492p-3f));
  q = v_fma(q, r, v_set(0x1.fffffcp-2f));
  const V p = v_add(v_set(1.0f), v_fma(v_mul(r, r), q, r));
  // n is added to the exponent. In the range kept below this never leaves the normal numbers: at the lower end r >= 0, so p >= 1.
  V y = v_from_bits(b_add(v_bits(p), b_shift_left<23>(v_bits(shifted))));
  y = v_select(v_less(v_set(0x1.62e42ep+6f), x), v_set(kInfinity), y);  // ln FLT_MAX, rounded down
  y = v_select(v_less(x, v_set(-0x1.5d589ep+6f)), v_zero(), y);         // ln 2^-126, rounded up
  return v_select(v_is_nan(x), v_add(x, x), y);
}

// ln x = e ln 2 + ln(1 + f), 1 + f in [sqrt 1/2, sqrt 2), ln(1 + f) = f - f²/2 + f³ p(f). Within 0.84 ulp.
inline V v_log(V x) {
  const B from_root_half = b_sub(v_bits(x), b_set(0x3f3504f3u));
  const V e = v_from_int(b_shift_right_signed<23>(from_root_half));
  const V f = v_sub(v_from_bits(b_add(b_and(from_root_half, b_set(0x007fffffu)), b_set(0x3f3504f3u))), v_set(1.0f));
  V p = v_set(0x1.1457bap-4f);
  p = v_fma(p, f, v_set(-0x1.de404ep-4f));
  p = v_fma(p, f, v_set(0x1.e6f2a6p-4f));
  p = v_fma(p, f, v_set(-0x1.fc218cp-4f));
  p = v_fma(p, f, v_set(0x1.23373cp-3f));
  p = v_fma(p, f, v_set(-0x1.555c4ep-3f));
  p = v_fma(p, f, v_set(0x1.99a4b8p-3f));
  p = v_fma(p, f, v_set(-0x1.000006p-2f));
  p = v_fma(p, f, v_set(0x1.555548p-2f));
  const V f2 = v_mul(f, f);
  V y = v_mul(v_mul(p, f), f2);
  y = v_fma(e, v_set(0x1.90bfbep-11f), y);  // ln 2 in two parts; the high one has 10 bits, so that e * high is exact
  y = v_nfma(v_set(0.5f), f2, y);
  y = v_fma(e, v_set(0x1.628p-1f), v_add(f, y));
  const V below = v_select(v_less(x, v_zero()), v_set(__builtin_nanf("")), v_set(-kInfinity));
  y = v_select(v_less(x, v_set(kSmallestNormal)), below, y);
  y = v_select(v_less(v_set(0x1.fffffep+127f), x), x, y);
  return v_select(v_is_nan(x), v_add(x, x), y);
}

inline V v_sigmoid(V x) { return v_div(v_set(1.0f), v_add(v_set(1.0f), v_exp(v_sub(v_zero(), x)))); }

inline V v_silu(V x) { return v_div(x, v_add(v_set(1.0f), v_exp(v_sub(v_zero(), x)))); }

// ln(1 + e^x), x itself above 20 (as torch). The rounding of 1 + e^x is put back: ln u + (e^x - (u - 1)) / u.
inline V v_softplus(V x) {
  const V e = v_exp(x);
  const V u = v_add(v_set(1.0f), e);
  const V lost = v_sub(e, v_sub(u, v_set(1.0f)));
  const V y = v_add(v_log(u), v_div(lost, u));
  return v_select(v_less(v_set(20.0f), x), x, y);
}
