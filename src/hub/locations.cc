#include "hub/locations.h"

#include <algorithm>
#include <cctype>

namespace sterling::hub {
namespace {

// As huggingface_hub reads its switches.
bool is_true(std::string value) {
  std::transform(value.begin(), value.end(), value.begin(), [](unsigned char c) { return std::toupper(c); });
  return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
}

}  // namespace

Locations locate(const Environment& environment) {
  Locations found;
  std::filesystem::path home = environment.hf_home;
  if (home.empty() && !environment.xdg_cache_home.empty()) {
    home = std::filesystem::path(environment.xdg_cache_home) / "huggingface";
  }
  if (home.empty()) home = std::filesystem::path(environment.home) / ".cache" / "huggingface";
  if (!environment.hf_hub_cache.empty()) {
    found.cache = environment.hf_hub_cache;
  } else if (!environment.huggingface_hub_cache.empty()) {
    found.cache = environment.huggingface_hub_cache;
  } else {
    found.cache = home / "hub";
  }
  found.token_file =
      environment.hf_token_path.empty() ? home / "token" : std::filesystem::path(environment.hf_token_path);
  found.endpoint = environment.hf_endpoint.empty() ? kDefaultEndpoint : environment.hf_endpoint;
  while (found.endpoint.ends_with('/')) found.endpoint.pop_back();
  found.offline = is_true(environment.hf_hub_offline);
  return found;
}

}  // namespace sterling::hub
