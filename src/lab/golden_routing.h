// Expert choices under BF16. A router's choice is discontinuous: a rounding that moves two logits past each other sends the token through
// another expert, and no bound on roundings bounds what follows. So the BF16 mode of a model with experts is compared in two parts, against
// the FP32 mode, which in turn must make the reference's choices exactly:
//
//   1. Every choice that differs from FP32's must be a near tie. Only first ones are judged; what a token sees after a flip in a lower
//      layer, at its own or an earlier position, is another text. The gap in FP32 between the last chosen and the first rejected logit must be at most
//
//          2 * rho * largest |router logit| of the token,     rho = BF16 bound of the prompt's logits / their magnitude
//
//      (the rule of golden_bounds.h for entries without float32 values: relative noise carries over; two logits move).
//   2. What comes before the first flip is held to the ordinary bounds: positions before it in logits and text, layers below it elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sterling::lab {

struct GoldenFlip {
  std::int32_t layer = 0;     // among the layers with experts
  std::int64_t position = 0;  // in prompt + greedy text
  double margin = 0.0;        // in FP32, in logits
  double allowed = 0.0;

  bool excused() const { return margin <= allowed; }
};

// Choices of one run over n tokens, [layers][n] tokens each.
struct RoutedRun {
  std::span<const std::int32_t> experts;  // [layers][n][k], any order within a token
  std::span<const float> margins;         // [layers][n]
  std::span<const float> magnitudes;      // [layers][n]
};

// First flips of `rounded` against `unrounded`, by position and layer. Same sizes; n = tokens, k = experts per token.
std::vector<GoldenFlip> first_flips(const RoutedRun& unrounded, const RoutedRun& rounded, std::size_t tokens,
                                    double relative_bound);

// The earliest position of any; `none` without flips.
std::int64_t first_flipped_position(std::span<const GoldenFlip> flips, std::int64_t none);

// The lowest layer that flips before position `end`; `none` without.
std::int32_t first_flipped_layer(std::span<const GoldenFlip> flips, std::int64_t end, std::int32_t none);

}  // namespace sterling::lab
