// Lists of modules in quantisation metadata. Pure, thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace sterling::formats {

// Module names as exclude_modules, ignore and modules_to_not_convert spell them: a name (also of a parent, or the end of a name), a shell pattern, or "re:" and a
// regular expression that matches from the start.
class ModulePatterns {
 public:
  ModulePatterns() = default;
  explicit ModulePatterns(std::vector<std::string> patterns);
  bool matches(std::string_view module) const;
  const std::vector<std::string>& all() const { return patterns_; }
  // Whether one pattern matches one module, by the same rules.
  static bool match(const std::string& pattern, std::string_view module);

 private:
  std::vector<std::string> patterns_;
  // Most patterns are names or "name*"; a large checkpoint has thousands of modules to hold against hundreds of them.
  std::unordered_set<std::string> names_;
  std::unordered_set<std::string> prefixes_;
  std::vector<std::size_t> prefix_lengths_;
  std::vector<std::string> general_;
};

}  // namespace sterling::formats
