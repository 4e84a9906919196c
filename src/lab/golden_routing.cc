#include "lab/golden_routing.h"

#include <algorithm>

namespace sterling::lab {
namespace {

bool same_experts(std::span<const std::int32_t> a, std::span<const std::int32_t> b) {
  return std::is_permutation(a.begin(), a.end(), b.begin(), b.end());
}

}  // namespace

std::vector<GoldenFlip> first_flips(const RoutedRun& unrounded, const RoutedRun& rounded, std::size_t tokens,
                                    double relative_bound) {
  std::vector<GoldenFlip> flips;
  if (tokens == 0 || unrounded.margins.empty()) return flips;
  const std::size_t layers = unrounded.margins.size() / tokens;
  const std::size_t k = unrounded.experts.size() / unrounded.margins.size();
  std::size_t seen_until = tokens;  // the earliest flip in the layers below: from there on all is consequence
  for (std::size_t layer = 0; layer < layers; ++layer) {
    std::size_t earliest = seen_until;
    for (std::size_t position = 0; position < seen_until; ++position) {
      const std::size_t at = layer * tokens + position;
      if (same_experts(unrounded.experts.subspan(at * k, k), rounded.experts.subspan(at * k, k))) continue;
      flips.push_back({static_cast<std::int32_t>(layer), static_cast<std::int64_t>(position),
                       static_cast<double>(unrounded.margins[at]),
                       2.0 * relative_bound * static_cast<double>(unrounded.magnitudes[at])});
      earliest = std::min(earliest, position);
    }
    seen_until = earliest;
  }
  return flips;
}

std::int64_t first_flipped_position(std::span<const GoldenFlip> flips, std::int64_t none) {
  for (const GoldenFlip& flip : flips) none = std::min(none, flip.position);
  return none;
}

std::int32_t first_flipped_layer(std::span<const GoldenFlip> flips, std::int64_t end, std::int32_t none) {
  for (const GoldenFlip& flip : flips) {
    if (flip.position < end) none = std::min(none, flip.layer);
  }
  return none;
}

}  // namespace sterling::lab
