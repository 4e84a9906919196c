#include "cli/output_file.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <fmt/format.h>

namespace sterling::cli {

namespace fs = std::filesystem;

Status check_output(const std::string& path, std::string_view flag, bool replace) {
  const auto wrong = [&](const std::string& what) {
    return make_error(ErrorCode::kInvalidArgument, fmt::format("{} {}: {}", flag, path, what), std::string(flag));
  };
  std::error_code error;
  const fs::path out = path;
  if (fs::is_directory(out, error)) return wrong("is a folder; accepted: a file");
  if (!replace && fs::exists(out, error)) return wrong("exists; --force replaces it");
  const fs::path folder = out.has_parent_path() ? out.parent_path() : ".";
  if (!fs::is_directory(folder, error)) return wrong(fmt::format("{} is no folder", folder.string()));
  if (::access(folder.c_str(), W_OK | X_OK) != 0) return wrong(fmt::format("{} can't be written to", folder.string()));
  return {};
}

Status write_output(const std::string& path, std::string_view flag, std::string_view text) {
  const std::string temporary = fmt::format("{}.{}.part", path, ::getpid());
  std::error_code ignored;
  {
    std::ofstream file(temporary, std::ios::binary);
    file << text;
    file.flush();
    if (!file) {
      fs::remove(temporary, ignored);
      return make_error(ErrorCode::kIo, fmt::format("{} {}: cannot be written", flag, path), std::string(flag));
    }
  }
  std::error_code error;
  fs::rename(temporary, path, error);
  if (!error) return {};
  fs::remove(temporary, ignored);
  return make_error(ErrorCode::kIo, fmt::format("{} {}: {}", flag, path, error.message()), std::string(flag));
}

}  // namespace sterling::cli
