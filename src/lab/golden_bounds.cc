#include "lab/golden_bounds.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace sterling::lab {
namespace {

template <typename T>
double largest_difference(std::span<const T> got, std::span<const double> wanted) {
  STERLING_CHECK(got.size() == wanted.size());
  double worst = 0.0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double difference = std::abs(static_cast<double>(got[i]) - wanted[i]);
    if (!std::isfinite(difference)) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, difference);
  }
  return worst;
}

}  // namespace

std::string_view golden_compute_name(GoldenCompute compute) {
  return compute == GoldenCompute::kFp32 ? "fp32" : "bf16";
}

double max_abs(std::span<const double> values) {
  double worst = 0.0;
  for (const double value : values) worst = std::max(worst, std::abs(value));
  return worst;
}

double max_abs_error(std::span<const float> got, std::span<const double> wanted) {
  return largest_difference(got, wanted);
}
double max_abs_error(std::span<const double> got, std::span<const double> wanted) {
  return largest_difference(got, wanted);
}

double yardstick(double distance, double magnitude) {
  return std::max(distance, kFloorUnits * kUnitFp32 * magnitude);
}

double error_bound(GoldenCompute compute, double yardstick, bool gdn) {
  if (compute == GoldenCompute::kFp32) return kFp32Factor * yardstick;
  return (gdn ? kBf16ShareGdn : kBf16Share) * (kUnitBf16 / kUnitFp32) * yardstick;
}

}  // namespace sterling::lab
