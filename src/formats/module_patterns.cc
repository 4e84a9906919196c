#include "formats/module_patterns.h"

#include <algorithm>
#include <exception>
#include <regex>
#include <utility>

#include <fnmatch.h>

namespace sterling::formats {
namespace {

// libstdc++'s usual matcher backtracks, exponentially for a hostile pattern; this one walks all states at once (and refuses back-references).
#if defined(__GLIBCXX__)
constexpr auto kRegularSyntax = std::regex_constants::ECMAScript | std::regex_constants::__polynomial;
#else
constexpr auto kRegularSyntax = std::regex_constants::ECMAScript;
#endif

constexpr std::size_t kLongestPattern =
    512;  // of a regular expression and of the names held against it: libstdc++'s matcher recurses

bool has_wildcard(std::string_view text) {
  return text.find_first_of("*?[") != std::string_view::npos;
}

}  // namespace

ModulePatterns::ModulePatterns(std::vector<std::string> patterns) : patterns_(std::move(patterns)) {
  std::unordered_set<std::size_t> lengths;
  for (const std::string& pattern : patterns_) {
    const bool regular = pattern.starts_with("re:");
    if (!regular && !has_wildcard(pattern)) {
      names_.insert(pattern);
    } else if (!regular && pattern.ends_with('*') &&
               !has_wildcard(std::string_view(pattern).substr(0, pattern.size() - 1))) {
      prefixes_.insert(pattern.substr(0, pattern.size() - 1));
      lengths.insert(pattern.size() - 1);
    } else {
      general_.push_back(pattern);
    }
  }
  prefix_lengths_.assign(lengths.begin(), lengths.end());
}

bool ModulePatterns::match(const std::string& pattern, std::string_view module) {
  if (pattern.starts_with("re:")) {
    if (pattern.size() > kLongestPattern || module.size() > kLongestPattern) return false;
    try {
      const std::regex expression(pattern.substr(3), kRegularSyntax);
      return std::regex_search(module.begin(), module.end(), expression, std::regex_constants::match_continuous);
    } catch (const std::exception&) {
      return false;  // not a regular expression: it matches nothing, which inspection reports
    }
  }
  if (has_wildcard(pattern)) {
    const std::string name(module);
    if (fnmatch(pattern.c_str(), name.c_str(), 0) == 0) return true;
    // "name.*" also means what stands under it at any depth, which fnmatch's * covers; a pattern of a parent covers its children.
    return fnmatch((pattern + ".*").c_str(), name.c_str(), 0) == 0;
  }
  if (module == pattern) return true;
  if (module.size() > pattern.size() && module.starts_with(pattern) && module[pattern.size()] == '.') return true;
  return module.size() > pattern.size() && module.ends_with(pattern) &&
         module[module.size() - pattern.size() - 1] == '.';
}

bool ModulePatterns::matches(std::string_view module) const {
  if (!names_.empty()) {
    for (std::size_t at = 0; at != std::string_view::npos;) {
      const std::size_t dot = module.find('.', at);
      if (names_.contains(std::string(module.substr(0, dot)))) return true;
      if (at > 0 && names_.contains(std::string(module.substr(at)))) return true;
      at = dot == std::string_view::npos ? dot : dot + 1;
    }
  }
  for (const std::size_t length : prefix_lengths_) {
    if (module.size() >= length && prefixes_.contains(std::string(module.substr(0, length)))) return true;
  }
  return std::any_of(general_.begin(), general_.end(),
                     [&](const std::string& pattern) { return match(pattern, module); });
}

}  // namespace sterling::formats
