// The loop of fused multiply-adds behind the peaks of both vector widths. Included by units with ISA flags of their own, hence the unnamed namespace.
#pragma once

namespace sterling::bench {
namespace {

// Floating-point operations done. Vec: __m256 or __m512.
template <class Vec>
double peak_fma(long iterations) {
  Vec a0{}, a1{}, a2{}, a3{}, a4{}, a5{}, a6{}, a7{}, a8{}, a9{}, a10{}, a11{};
  const Vec x = Vec{} + 0.5F;
  for (long i = 0; i < iterations; ++i) {
    // Written out: twelve chains hide the latency, and the compiler can neither merge nor drop them.
    asm volatile(
        "vfmadd231ps %12, %12, %0\n"
        "vfmadd231ps %12, %12, %1\n"
        "vfmadd231ps %12, %12, %2\n"
        "vfmadd231ps %12, %12, %3\n"
        "vfmadd231ps %12, %12, %4\n"
        "vfmadd231ps %12, %12, %5\n"
        "vfmadd231ps %12, %12, %6\n"
        "vfmadd231ps %12, %12, %7\n"
        "vfmadd231ps %12, %12, %8\n"
        "vfmadd231ps %12, %12, %9\n"
        "vfmadd231ps %12, %12, %10\n"
        "vfmadd231ps %12, %12, %11\n"
        : "+v"(a0), "+v"(a1), "+v"(a2), "+v"(a3), "+v"(a4), "+v"(a5), "+v"(a6), "+v"(a7), "+v"(a8), "+v"(a9), "+v"(a10),
          "+v"(a11)
        : "v"(x));
  }
  constexpr int kLanes = sizeof(Vec) / sizeof(float);
  return static_cast<double>(iterations) * 12 * 2 * kLanes;
}

}  // namespace
}  // namespace sterling::bench
