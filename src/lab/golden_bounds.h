// When is a difference from the reference a fault? The rule of `sterling golden`, as plain arithmetic.
//
// Yardstick of an entry (logits of a prompt, residual stream after a layer, …):
//
//     Y = max(d, F)        d = largest |HF float32 - HF float64| over the entry
//                          F = 4 * 2^-24 * largest |HF float64| over the entry
//
// d measures how this model, on this prompt, at this place amplifies FP32 roundings; it differs by orders of magnitude between
// prompts (Gated DeltaNet's output norm may divide by almost nothing), so nothing fixed would do. But it is one draw, and over a few
// hundred values it may turn out small by luck. F keeps that from failing anybody: whatever comes out of a block has passed at
// least a norm, a product, an activation or softmax, a second product and an addition: 16 or more independent roundings of at
// most u = 2^-24 of the magnitude, which add up in quadrature to sqrt(16) u.
//
// Where the reference holds no float32 values for an entry of layer i, d comes from the nearest that it does hold, the residual
// stream before and after that layer (rows i and i + 1 of `hidden`, distances d_i and d_i+1, magnitudes m_i and m_i+1):
//
//     K, V, Gated DeltaNet state and window:  d = max(d_i / m_i, d_i+1 / m_i+1) * largest |entry|      (relative noise carries over)
//     mixer and MLP output:                   the same, but at least max(d_i, d_i+1)                    (they are summands of row i + 1)
//
// Checked on entries that do have float32 values: HF's own distance is 0.1 to 1.7 times this estimate.
//
// FP32 mode passes when error <= 4 Y. The factor 4 is the project's promise, not a derivation: another correct FP32 engine sums in
// another order and rounds at other places, which changes its error by less than that.
//
// BF16 mode. The graph is the same; what changes is the unit of one kind of rounding. Every input of a matrix product (and q, k, v and
// the softmax numerators) is rounded to 8 significant bits, u = 2^-8 instead of 2^-24; norms, sums of products, softmax, rope, the
// delta rule and the residual stream stay in FP32. To first order an output error is a linear function of the roundings, with the
// model's own derivatives as coefficients, so scaling their unit by 2^16 scales their contribution by 2^16: if *all* of HF
// float32's roundings were made with the BF16 unit, the error would be about 2^16 d. Only a share of them is. Roundings are
// independent and add in quadrature; per matrix product HF float32 makes one rounding of the input as such, two or three in the norm or
// activation before it, four to eight effective ones in the sum, and one in the residual addition, so the input's share of
// the variance is near 1/10 and of the magnitude near 0.3. (K and V stored in BF16: an error of at most 2^-8 of their
// magnitude, which 2^16 F = 2^-6 of it already covers.) Both sides are largest values of random draws, whose quotient varies by a factor
// of two to three around that share; hence
//
//     error <= share * 2^16 * Y      share = 1; 2 for models with Gated DeltaNet
//
// 1 is what rounding everywhere would give, three times the expected share. Gated DeltaNet's output norm can make a single
// token's roundings outweigh all others; then both sides are single draws instead of maxima of many, and their quotient spreads wider.
//
// tools/golden/rounding.py runs the float64 reference with exactly these roundings put in. Over 56 models (seven families, two sizes,
// four seeds) error / (2^16 Y) was: attention models median 0.19, 95 % below 0.35, at most 0.68; Gated DeltaNet models 0.16, 0.42, 1.82.
//
// Sets whose K and V pass through FP8 are discontinuous: an element that rounds to the other side moves by a whole code, and that moves the K and V of
// later layers. Their makers see to it that no element of prompts of at most 17 tokens lies near a rounding switch in FP32; those keep the bounds above
// (FP32), and their codes must be equal one by one. Longer prompts, and everything under BF16, where K and V arrive with errors of 2^-8 and so
// about one element in ten rounds otherwise, get in addition
//
// (with Y from the set without quantised K and V)
//
//     share * S      S = how far quantising K and V moved this entry in the reference (set against set);  share = 0.5
//
// An engine that does not quantise at all is off by S itself and fails; one that quantises with a wrong scale or rounding is off by more. Errors of
// one code in a tenth of the elements come to sqrt(1/10) S = 0.3 S. Hugging Face's own float32 run reaches 0.1 S (179 codes of p65 in the llama set).
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

namespace sterling::lab {

enum class GoldenCompute { kFp32, kBf16 };

// "fp32", "bf16".
std::string_view golden_compute_name(GoldenCompute compute);

inline constexpr double kUnitFp32 = 0x1p-24;
inline constexpr double kUnitBf16 = 0x1p-8;
inline constexpr double kFloorUnits = 4.0;
inline constexpr double kFp32Factor = 4.0;
inline constexpr double kBf16Share = 1.0;
inline constexpr double kBf16ShareGdn = 2.0;
inline constexpr double kQuantisedShare = 0.5;
inline constexpr std::size_t kQuantisedTightTokens = 17;

// Largest |value|; 0 of nothing.
double max_abs(std::span<const double> values);

// Largest |got - wanted|, infinity as soon as one is NaN or infinite. Equal sizes.
double max_abs_error(std::span<const float> got, std::span<const double> wanted);
double max_abs_error(std::span<const double> got, std::span<const double> wanted);

// Y for a distance d (0 if unknown) and the entry's magnitude.
double yardstick(double distance, double magnitude);

// What a mode may be off by. `gdn`: the model has Gated DeltaNet layers.
double error_bound(GoldenCompute compute, double yardstick, bool gdn);

}  // namespace sterling::lab
