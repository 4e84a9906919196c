#include "formats/listing.h"

#include <cstddef>
#include <system_error>

#include <fmt/format.h>

namespace sterling::formats {

namespace fs = std::filesystem;

Expected<ModelListing> list_model_directory(const fs::path& directory) {
  ModelListing listing;
  std::error_code error;
  fs::directory_iterator it(directory, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name == kConfigName) listing.has_config = true;
    if (name == kIndexName) listing.has_index = true;
    if (name.ends_with(".safetensors")) listing.safetensors.push_back(name);
    if (name.ends_with(".gguf")) listing.ggufs.push_back(name);
  }
  if (error) {
    const bool denied = error == std::errc::permission_denied;
    return make_error(denied ? ErrorCode::kPermission : ErrorCode::kIo,
                      fmt::format("{}: the directory cannot be read: {}", directory.string(), error.message()),
                      directory.string());
  }
  std::sort(listing.safetensors.begin(), listing.safetensors.end());
  std::sort(listing.ggufs.begin(), listing.ggufs.end());
  return listing;
}

std::string joined_names(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 5;
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < kMost; ++i) text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kMost) text += fmt::format(" and {} more", names.size() - kMost);
  return text;
}

}  // namespace sterling::formats
