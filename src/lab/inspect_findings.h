// Findings of inspection, collected with a limit per code: a fault of every layer is one fault.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lab/inspect.h"

namespace sterling::lab {

// Adds at most kMost of a code; on close, one that says how many more there are.
class Findings {
 public:
  static constexpr std::size_t kMost = 20;

  explicit Findings(std::vector<LintFinding>& lint) : lint_(lint) {}
  void add(LintSeverity severity, const std::string& code, std::string where, std::string message) {
    Seen& seen = seen_[code];
    seen.severity = severity;
    if (++seen.count > kMost) return;
    lint_.push_back({severity, code, std::move(where), std::move(message)});
  }
  void close() {
    for (const auto& [code, seen] : seen_) {
      if (seen.count <= kMost) continue;
      lint_.push_back({seen.severity, code, "", fmt::format("and {} more of this kind", seen.count - kMost)});
    }
  }

 private:
  struct Seen {
    LintSeverity severity = LintSeverity::kNote;
    std::size_t count = 0;
  };
  std::vector<LintFinding>& lint_;
  std::map<std::string, Seen> seen_;
};

}  // namespace sterling::lab
