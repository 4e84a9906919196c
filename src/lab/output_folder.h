// The folder that a new checkpoint goes to: it must not exist or be empty, and what was put there goes away again unless the work is kept.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace sterling::lab {

// Move-only. Removes its files, and the folder if it made it, when it is destroyed before keep().
class OutputFolder {
 public:
  // Looks only. kInvalidArgument: something other than an empty folder stands there.
  static Expected<OutputFolder> check(std::filesystem::path path);
  OutputFolder(OutputFolder&& other) noexcept;
  OutputFolder& operator=(OutputFolder&&) = delete;
  ~OutputFolder();

  // Creates it, parents included, after seeing that the disk has room. kResourceExhausted names what is needed and what is there.
  Status create(std::int64_t bytes);

  const std::filesystem::path& path() const { return path_; }
  Status write(const std::string& name, std::string_view text);
  // Copies a file's content (a link is followed).
  Status copy(const std::filesystem::path& from, const std::string& name);
  void keep() { kept_ = true; }
  // Files put there by write() and copy(), in order.
  const std::vector<std::string>& files() const { return files_; }

 private:
  explicit OutputFolder(std::filesystem::path path) : path_(std::move(path)) {}

  std::filesystem::path path_;
  std::vector<std::filesystem::path> created_;  // folders, outermost first
  std::vector<std::string> files_;
  bool kept_ = false;
};

}  // namespace sterling::lab
