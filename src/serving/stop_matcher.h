// Finds stop strings in text that arrives in pieces, and never lets go of text that may still turn out to be part of one.
//
// The match taken is the one that ends first (of those, the longest), so the result does not depend on how the text was cut
// into pieces. Knuth–Morris–Pratt per stop string: the work per character is bounded by the number of strings.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sterling::serving {

class StopMatcher {
 public:
  // `stops` are non-empty UTF-8. With `include` the matched string itself is let through.
  StopMatcher(std::vector<std::string> stops, bool include);

  // Returns the text that is safe to show now. `text` is whole characters. While `may_match` is false complete matches are
  // passed over. After a match everything more is swallowed.
  std::string push(std::string_view text, bool may_match = true);

  // What was held back, at the end of the text.
  std::string flush();

  // Which stop string ended the text.
  const std::optional<std::string>& matched() const { return matched_; }

 private:
  struct Pattern {
    std::string text;
    std::vector<std::size_t> fallback;  // [i]: longest proper prefix of text that ends at text[0..i]
    std::size_t length = 0;             // matched so far
  };

  std::vector<Pattern> patterns_;
  bool include_;
  std::string held_;
  std::optional<std::string> matched_;
};

}  // namespace sterling::serving
