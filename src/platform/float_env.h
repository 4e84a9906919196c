// The floating point environment of the forward pass: round to nearest even, all exceptions masked, subnormal results
// flushed to zero (FTZ) and subnormal inputs read as zero (DAZ). The canonical arithmetic (docs/numerics.md) is defined in
// this environment, so every thread that computes runs in it, whichever thread calls.
#pragma once

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include <cstdint>

namespace sterling::platform {

#if defined(__SSE2__)

// MXCSR: 0x1f80 is the power-on value (masked exceptions, nearest even), 0x8000 FTZ, 0x0040 DAZ.
inline constexpr std::uint32_t kComputeFloatState = 0x1f80u | 0x8000u | 0x0040u;

inline std::uint32_t read_float_state() {
  return _mm_getcsr();
}
inline void write_float_state(std::uint32_t state) {
  _mm_setcsr(state);
}

#elif defined(__aarch64__)

// FPCR: bit 24 (FZ) flushes both inputs and results of single and double precision.
inline constexpr std::uint32_t kComputeFloatState = 1u << 24;

inline std::uint32_t read_float_state() {
  std::uint64_t state = 0;
  asm volatile("mrs %0, fpcr" : "=r"(state));
  return static_cast<std::uint32_t>(state);
}
inline void write_float_state(std::uint32_t state) {
  asm volatile("msr fpcr, %0" : : "r"(std::uint64_t{state}));
}

#else
#error "no flush-to-zero control is known for this architecture"
#endif

// Puts the calling thread into the compute environment and gives it its own state back at the end of the scope.
class ComputeFloatScope {
 public:
  ComputeFloatScope() : saved_(read_float_state()) { write_float_state(kComputeFloatState); }
  ~ComputeFloatScope() { write_float_state(saved_); }
  ComputeFloatScope(const ComputeFloatScope&) = delete;
  ComputeFloatScope& operator=(const ComputeFloatScope&) = delete;

 private:
  std::uint32_t saved_;
};

}  // namespace sterling::platform
