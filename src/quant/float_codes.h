// Small floating-point codes of quantised checkpoints and their exact FP32 values.
//   E4M3  (OCP FP8 "fn"): bias 7, no infinity, NaN at 0x7f and 0xff, largest 448
//   E5M2  (OCP FP8, IEEE-like): bias 15, infinities and NaNs
//   E8M0  (OCP MX scale): 2^(code - 127), NaN at 0xff
//   E2M1  (OCP FP4): 0, 0.5, 1, 1.5, 2, 3, 4, 6 with sign; bits 0-3
// Source: OCP 8-bit Floating Point Specification 1.0; OCP Microscaling Formats 1.0.
#pragma once

#include <array>
#include <cstdint>

namespace sterling::quant {

// Exact for every code; NaN codes give a quiet NaN with the code's sign.
float e4m3_to_float(std::uint8_t code);
float e5m2_to_float(std::uint8_t code);
float e8m0_to_float(std::uint8_t code);
// Only the low four bits count.
float e2m1_to_float(std::uint8_t code);

// The same by table: index = code.
const std::array<float, 256>& e4m3_table();
const std::array<float, 256>& e5m2_table();
const std::array<float, 256>& e8m0_table();
const std::array<float, 16>& e2m1_table();

}  // namespace sterling::quant
