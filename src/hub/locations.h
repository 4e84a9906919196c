// Where the hub and its cache are, from the environment variables that every program around the hub shares. Pure functions.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/status.h"

namespace sterling::hub {

// The variables as they stand; cli/ reads them. An empty one counts as not set. "~" and "$NAME" in paths have been replaced.
struct Environment {
  std::string home = {};                   // HOME
  std::string xdg_cache_home = {};         // XDG_CACHE_HOME
  std::string hf_home = {};                // HF_HOME
  std::string hf_hub_cache = {};           // HF_HUB_CACHE
  std::string huggingface_hub_cache = {};  // HUGGINGFACE_HUB_CACHE, the old name
  std::string hf_endpoint = {};            // HF_ENDPOINT
  std::string hf_token_path = {};          // HF_TOKEN_PATH
  std::string hf_hub_offline = {};         // HF_HUB_OFFLINE
};

struct Locations {
  std::filesystem::path cache;  // holds models--ORG--NAME/
  std::filesystem::path token_file;
  std::string endpoint;  // without a slash at its end
  bool offline = false;
};

inline constexpr const char* kDefaultEndpoint = "https://huggingface.co";

// The cache: HF_HUB_CACHE, else HUGGINGFACE_HUB_CACHE, else $HF_HOME/hub, else $XDG_CACHE_HOME/huggingface/hub, else
// ~/.cache/huggingface/hub.
Locations locate(const Environment& environment);

}  // namespace sterling::hub
