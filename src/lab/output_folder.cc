#include "lab/output_folder.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "formats/safetensors_writer.h"
#include "platform/mapped_file.h"

namespace sterling::lab {
namespace {

namespace fs = std::filesystem;

Error file_error(std::string_view what, const fs::path& path, const std::error_code& code) {
  const ErrorCode kind = code == std::errc::permission_denied || code == std::errc::read_only_file_system
                             ? ErrorCode::kPermission
                             : ErrorCode::kIo;
  return make_error(kind, fmt::format("{}: {}: {}", path.string(), what, code.message()), path.string());
}

}  // namespace

Expected<OutputFolder> OutputFolder::check(fs::path path) {
  // Without a slash at the end, which would have no file name.
  if (!path.has_filename() && path.has_parent_path()) path = path.parent_path();
  std::error_code code;
  const fs::file_status status = fs::status(path, code);
  if (!fs::exists(status)) return OutputFolder(std::move(path));
  if (!fs::is_directory(status)) {
    return make_error(
        ErrorCode::kInvalidArgument,
        fmt::format("{}: there is a file of this name; accepted: a new or an empty folder", path.string()), "--out");
  }
  const bool empty = fs::is_empty(path, code);
  if (code) return file_error("can't be read", path, code);
  if (!empty) {
    return make_error(
        ErrorCode::kInvalidArgument,
        fmt::format("{}: the folder is not empty; accepted: a new or an empty one (nothing is overwritten)",
                    path.string()),
        "--out");
  }
  return OutputFolder(std::move(path));
}

OutputFolder::OutputFolder(OutputFolder&& other) noexcept
    : path_(std::move(other.path_)),
      created_(std::move(other.created_)),
      files_(std::move(other.files_)),
      kept_(std::exchange(other.kept_, true)) {}

OutputFolder::~OutputFolder() {
  if (kept_) return;
  std::error_code ignored;
  for (const std::string& file : files_) fs::remove(path_ / file, ignored);
  // Innermost first; a folder that somebody else put something into stays.
  for (auto folder = created_.rbegin(); folder != created_.rend(); ++folder) fs::remove(*folder, ignored);
}

Status OutputFolder::create(std::int64_t bytes) {
  std::error_code code;
  fs::path existing = fs::absolute(path_, code);
  std::vector<fs::path> missing;
  while (!existing.empty() && !fs::exists(existing, code)) {
    missing.push_back(existing);
    if (existing == existing.parent_path()) break;
    existing = existing.parent_path();
  }
  const fs::space_info space = fs::space(existing, code);
  if (!code && space.available < static_cast<std::uintmax_t>(bytes)) {
    return make_error(
        ErrorCode::kResourceExhausted,
        fmt::format("{}: {} bytes are needed and {} are free on this disk", path_.string(), bytes, space.available),
        "--out");
  }
  for (auto folder = missing.rbegin(); folder != missing.rend(); ++folder) {
    code.clear();
    if (!fs::create_directory(*folder, code) && code) return file_error("can't be created", *folder, code);
    created_.push_back(*folder);
  }
  return {};
}

Status OutputFolder::write(const std::string& name, std::string_view text) {
  if (Status status = formats::write_file(path_ / name, text); !status) return status;
  files_.push_back(name);
  return {};
}

Status OutputFolder::copy(const fs::path& from, const std::string& name) {
  const auto source = platform::MappedFile::open(from);
  if (!source) return source.error();
  const auto data = source->data();
  return write(name, {reinterpret_cast<const char*>(data.data()), data.size()});
}

}  // namespace sterling::lab
