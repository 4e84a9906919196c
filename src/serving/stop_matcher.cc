#include "serving/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace sterling::serving {
namespace {

std::vector<std::size_t> fallback_table(std::string_view text) {
  std::vector<std::size_t> table(text.size(), 0);
  for (std::size_t i = 1, k = 0; i < text.size(); ++i) {
    while (k > 0 && text[i] != text[k]) k = table[k - 1];
    if (text[i] == text[k]) ++k;
    table[i] = k;
  }
  return table;
}

}  // namespace

StopMatcher::StopMatcher(std::vector<std::string> stops, bool include) : include_(include) {
  patterns_.reserve(stops.size());
  for (std::string& stop : stops) {
    if (stop.empty()) continue;
    std::vector<std::size_t> table = fallback_table(stop);
    patterns_.push_back(Pattern{std::move(stop), std::move(table), 0});
  }
}

std::string StopMatcher::push(std::string_view text, bool may_match) {
  if (matched_) return {};
  if (patterns_.empty()) return std::string(text);
  for (std::size_t at = 0; at < text.size(); ++at) {
    const Pattern* hit = nullptr;
    for (Pattern& p : patterns_) {
      while (p.length > 0 && p.text[p.length] != text[at]) p.length = p.fallback[p.length - 1];
      if (p.text[p.length] == text[at]) ++p.length;
      if (p.length < p.text.size()) continue;
      if (may_match && (hit == nullptr || p.text.size() > hit->text.size())) hit = &p;
      if (!may_match || hit != &p) p.length = p.fallback[p.length - 1];
    }
    if (hit != nullptr) {
      held_.append(text.substr(0, at + 1));
      if (!include_) held_.resize(held_.size() - hit->text.size());
      matched_ = hit->text;
      return std::exchange(held_, {});
    }
  }
  held_.append(text);
  std::size_t keep = 0;
  for (const Pattern& p : patterns_) keep = std::max(keep, p.length);
  std::string out = held_.substr(0, held_.size() - keep);
  held_.erase(0, out.size());
  return out;
}

std::string StopMatcher::flush() {
  for (Pattern& p : patterns_) p.length = 0;
  return std::exchange(held_, {});
}

}  // namespace sterling::serving
