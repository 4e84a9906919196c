// What a model directory holds, as far as opening it matters. Thread-safe.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace sterling::formats {

inline constexpr std::string_view kConfigName = "config.json";
inline constexpr std::string_view kIndexName = "model.safetensors.index.json";
inline constexpr std::string_view kSingleName = "model.safetensors";

// Plain file names, sorted.
struct ModelListing {
  bool has_config = false;
  bool has_index = false;
  std::vector<std::string> safetensors;
  std::vector<std::string> ggufs;

  bool has_safetensors(std::string_view name) const {
    return std::find(safetensors.begin(), safetensors.end(), name) != safetensors.end();
  }
};

// kPermission or kIo when the directory cannot be read.
Expected<ModelListing> list_model_directory(const std::filesystem::path& directory);

// The first few names, and how many more there are.
std::string joined_names(const std::vector<std::string>& names);

}  // namespace sterling::formats
