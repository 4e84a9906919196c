#include "server/auth.h"

#include <algorithm>
#include <cctype>

namespace sterling::server {
namespace {

bool equal_in_constant_time(std::string_view given, std::string_view key) {
  unsigned difference = given.size() == key.size() ? 0 : 1;
  for (std::size_t i = 0; i < given.size(); ++i) {
    difference |=
        static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(key.empty() ? '\0' : key[i % key.size()]);
  }
  return difference == 0;
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

}  // namespace

bool is_authorized(std::string_view authorization, const std::vector<std::string>& keys) {
  static constexpr std::string_view kScheme = "bearer ";
  if (!equal_ignoring_case(authorization.substr(0, kScheme.size()), kScheme)) return false;
  std::string_view given = authorization.substr(kScheme.size());
  while (given.starts_with(' ')) given.remove_prefix(1);
  bool found = false;
  for (const std::string& key : keys) {
    // No short cut: every key is compared.
    const bool equal = !key.empty() && equal_in_constant_time(given, key);
    found = found || equal;
  }
  return found;
}

bool is_foreign_origin(std::string_view origin, std::string_view host) {
  if (origin.empty()) return false;
  const std::size_t authority = origin.find("://");
  if (authority == std::string_view::npos) return true;  // "null"
  return !equal_ignoring_case(origin.substr(authority + 3), host);
}

}  // namespace sterling::server
