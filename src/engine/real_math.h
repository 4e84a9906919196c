// exp and log for sampling and log-probabilities: plain double additions and multiplications in a stated order, so that every
// CPU, compiler and C library gives the same bits. (libm's variants differ by CPU and by version.)
#pragma once

#include <bit>
#include <cstdint>

namespace sterling::engine {

// e^x for finite x <= 0, or -infinity; relative error below 4e-16. Exactly 0 below -700 (e^-700 is 1e-304; such a weight can't
// change a sum that holds a 1), so no subnormal ever appears and flush-to-zero modes don't matter.
//
// Written over a vector of doubles (a GCC vector type of any width, or a plain double through the function below), because the compilers'
// own vectorisers miss this loop and a vocabulary of exponentials is most of what a log-probability costs. The width does not
// change the bits.
//
// x = k ln2 + r with |r| <= ln2/2; e^r = 1 + r + r^2 q(r), q of degree 9 through Chebyshev nodes (approximation error 1.6e-17).
template <typename Doubles>
__attribute__((always_inline)) inline void exp_nonpositive_in_place(Doubles& x) {
  typedef std::uint64_t Words __attribute__((vector_size(sizeof(Doubles))));
  constexpr double kInverseLn2 = 0x1.71547652b82fep+0;
  constexpr double kLn2High = 0x1.62e42fee00000p-1;  // 32 bits, so k * kLn2High is exact
  constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  constexpr double kRound = 0x1.8p+52;  // adding it leaves the nearest integer in the low mantissa bits
  const Words keep = (Words)(x >= -700.0);
  const Doubles y = (Doubles)((Words)x & keep);  // 0 where the result vanishes
  const Doubles shifted = y * kInverseLn2 + kRound;
  const Doubles k = shifted - kRound;
  const Doubles r = (y - k * kLn2High) - k * kLn2Low;
  Doubles q = r * 0x1.af38a9b0ec855p-26 + 0x1.289185613a3d6p-22;
  q = q * r + 0x1.71de0dae63bb3p-19;
  q = q * r + 0x1.a019b90d2ae7ap-16;
  q = q * r + 0x1.a01a01a7c41d5p-13;
  q = q * r + 0x1.6c16c1788bd90p-10;
  q = q * r + 0x1.11111111109b3p-7;
  q = q * r + 0x1.5555555553d63p-5;
  q = q * r + 0x1.5555555555556p-3;
  q = q * r + 0x1.0000000000001p-1;
  const Doubles mantissa = 1.0 + (r + (r * r) * q);
  // 2^k by adding k to the exponent field; k sits in the low bits of `shifted` in two's complement.
  x = (Doubles)(((Words)mantissa + ((Words)shifted << 52)) & keep);
}

inline double exp_nonpositive(double x) {
  typedef double Pair __attribute__((vector_size(16)));
  Pair pair = {x, x};
  exp_nonpositive_in_place(pair);
  return pair[0];
}

// Natural logarithm of a finite, normal x > 0; error below 2 ulp of max(|log x|, 1/2). Used once per row, so clarity before speed.
inline double log_positive(double x) {
  constexpr double kLn2High = 0x1.62e42fee00000p-1;
  constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  const auto bits = std::bit_cast<std::uint64_t>(x);
  auto exponent = static_cast<std::int64_t>(bits >> 52) - 1023;
  double mantissa = std::bit_cast<double>((bits & 0x000fffffffffffffu) | 0x3ff0000000000000u);
  if (mantissa > 0x1.6a09e667f3bcdp+0) {  // sqrt(2): mantissa ends in (sqrt(1/2), sqrt(2)]
    mantissa *= 0.5;
    ++exponent;
  }
  // log m = 2 atanh(s), s = (m - 1) / (m + 1), |s| <= 0.172: the series' term s^25 is below 1e-19.
  const double s = (mantissa - 1.0) / (mantissa + 1.0);
  const double s2 = s * s;
  double series = 0.0;
  for (int n = 23; n >= 3; n -= 2) series = (series + 1.0 / n) * s2;
  const auto k = static_cast<double>(exponent);
  return k * kLn2High + (2.0 * (s + s * series) + k * kLn2Low);
}

}  // namespace sterling::engine
