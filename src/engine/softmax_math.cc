#include "engine/softmax_math.h"

#include <bit>
#include <cstdint>

namespace sterling::engine {

double exp_exact_order(double x) {
  if (x < -700.0) return 0.0;
  // n = round(x / ln 2), r = x - n ln 2 in two parts; e^r by its Taylor polynomial (|r| <= 0.347, remainder below 1e-17).
  const double shifted = x * 1.4426950408889634 + 0x1.8p52;
  const double n = shifted - 0x1.8p52;
  const double r = (x - n * 0x1.62e42fefa0000p-1) - n * 0x1.cf79abc9e3b3ap-40;
  double p = 1.0 / 6227020800.0;
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  const auto exponent = static_cast<std::int64_t>(n) + 1023;
  return p * std::bit_cast<double>(exponent << 52);
}

double log_exact_order(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  // m in [sqrt(1/2), sqrt 2), x = m 2^e.
  const std::uint64_t shifted = bits - 0x3fe6a09e667f3bcdu;
  const auto e = static_cast<double>(static_cast<std::int64_t>(shifted) >> 52);
  const double m = std::bit_cast<double>((shifted & 0xfffffffffffffu) + 0x3fe6a09e667f3bcdu);
  // ln m = 2 atanh(s), s = (m - 1) / (m + 1), |s| <= 0.172: odd series to s^21.
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  double p = 1.0 / 21.0;
  for (int k = 19; k >= 1; k -= 2) p = p * z + 1.0 / k;
  return e * 0.6931471805599453 + 2.0 * s * p;
}

}  // namespace sterling::engine
