// "Did you mean …?" for flags, keys, commands and choices.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace sterling::config {

// Damerau–Levenshtein distance in its restricted form (optimal string alignment): insertions, deletions, substitutions and
// swaps of neighbours, each 1, no part edited twice.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The candidate with the smallest distance, the first among equals; empty when none is near enough to be a slip of the
// keyboard (more than a third of the longer word differs, two letters in short words).
std::string nearest(std::string_view word, std::span<const std::string> candidates);

}  // namespace sterling::config
