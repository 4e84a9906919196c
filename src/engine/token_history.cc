#include "engine/token_history.h"

namespace sterling::engine {

TokenHistory::Entry& TokenHistory::entry(std::int32_t token) {
  const auto [place, is_new] = index_.try_emplace(token, entries_.size());
  if (is_new) entries_.push_back({token, 0});
  return entries_[place->second];
}

void TokenHistory::add_prompt(std::span<const std::int32_t> tokens) {
  for (const std::int32_t token : tokens) entry(token);
}

void TokenHistory::add_output(std::int32_t token) {
  ++entry(token).output_count;
}

}  // namespace sterling::engine
