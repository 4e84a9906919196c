// What the penalties look at: which tokens a sequence holds and how often it has produced each. Kept up to date token by
// token, because counting a long prompt anew at every step would cost more than the sampling.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace sterling::engine {

class TokenHistory {
 public:
  struct Entry {
    std::int32_t token = 0;
    std::int32_t output_count = 0;  // 0: in the prompt only
  };

  void add_prompt(std::span<const std::int32_t> tokens);
  void add_output(std::int32_t token);
  // Each token once; the order has no meaning (penalties of different tokens do not touch each other).
  std::span<const Entry> entries() const { return entries_; }

 private:
  Entry& entry(std::int32_t token);

  std::vector<Entry> entries_;
  std::unordered_map<std::int32_t, std::size_t> index_;
};

}  // namespace sterling::engine
