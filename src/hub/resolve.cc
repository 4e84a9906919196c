#include "hub/resolve.h"

#include <algorithm>
#include <fstream>
#include <vector>

#include <fmt/format.h>

#include "formats/message.h"

namespace sterling::hub {
namespace {

namespace fs = std::filesystem;

bool is_present(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// Commits that have a snapshot, in order.
std::vector<std::string> snapshots(const fs::path& repo) {
  std::vector<std::string> commits;
  std::error_code problem;
  for (fs::directory_iterator entry(repo / "snapshots", problem), end; !problem && entry != end;
       entry.increment(problem)) {
    const std::string name = entry->path().filename().string();
    if (is_commit_hash(name) && is_folder(entry->path())) commits.push_back(name);
  }
  std::sort(commits.begin(), commits.end());
  return commits;
}

std::vector<std::string> references(const fs::path& repo) {
  std::vector<std::string> names;
  std::error_code problem;
  const fs::path root = repo / "refs";
  for (fs::recursive_directory_iterator entry(root, problem), end; !problem && entry != end; entry.increment(problem)) {
    std::error_code ignored;
    if (entry->is_regular_file(ignored)) names.push_back(entry->path().lexically_relative(root).generic_string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// The commit that a reference file holds; empty when there is no such file.
Expected<std::string> read_reference(const fs::path& file) {
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) return std::string();
  std::ifstream stream(file, std::ios::binary);
  std::string text(64, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(stream.gcount()));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) text.pop_back();
  if (!is_commit_hash(text)) {
    return make_error(ErrorCode::kCorrupt,
                      fmt::format("{}: holds {}; expected a commit hash of 40 hexadecimal digits", file.string(),
                                  formats::quote(text)),
                      file.string());
  }
  return text;
}

std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 5;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kShown); ++i) text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kShown) text += fmt::format(" and {} more", names.size() - kShown);
  return text;
}

Error absent(const ModelId& id, const fs::path& repo) {
  const std::string wanted = id.repo.text() + (id.revision.empty() ? "" : "@" + id.revision);
  const std::string fetch = fmt::format("`sterling pull {}` fetches it", wanted);
  if (!is_folder(repo)) {
    return make_error(ErrorCode::kNotFound,
                      fmt::format("{} is neither a path here nor a model in the hub cache (looked for {}); {}", wanted,
                                  repo.string(), fetch),
                      wanted);
  }
  std::string there;
  if (const auto names = references(repo); !names.empty()) there += "; references there: " + listed(names);
  if (const auto commits = snapshots(repo); !commits.empty()) there += "; commits there: " + listed(commits);
  if (there.empty()) there = ", where no download has been completed";
  return make_error(
      ErrorCode::kNotFound,
      fmt::format("the hub cache has no finished revision {} of {} (looked in {}{}); {}",
                  id.revision.empty() ? "main" : id.revision, id.repo.text(), repo.string(), there, fetch),
      wanted);
}

Expected<std::string> find_commit(const std::string& revision, const fs::path& repo) {
  if (is_commit_hash(revision)) return revision;
  auto commit = read_reference(repo / "refs" / revision);
  if (!commit || !commit->empty()) return commit;
  constexpr std::size_t kShortest = 5;  // of an abbreviated hash; shorter ones are more likely a mistyped branch
  if (revision.size() < kShortest || !is_hex(revision, revision.size())) return std::string();
  std::vector<std::string> matches = snapshots(repo);
  std::erase_if(matches, [&](const std::string& each) { return !each.starts_with(revision); });
  if (matches.size() > 1) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("the revision {} is the beginning of several commits in {}: {}; give more digits",
                                  revision, repo.string(), listed(matches)),
                      revision);
  }
  return matches.empty() ? std::string() : matches.front();
}

}  // namespace

Expected<ResolvedModel> resolve_model(std::string_view model, const Locations& locations) {
  ResolvedModel resolved;
  resolved.path = fs::path(model);
  if (is_present(resolved.path)) return resolved;
  const auto id = parse_model_id(model);
  if (!id) return resolved;
  const fs::path repo = locations.cache / id->repo.folder();
  // A word without a slash is far more often a mistyped file than one of the hub's oldest models.
  if (id->repo.org.empty() && !is_folder(repo)) return resolved;

  resolved.repo = id->repo;
  resolved.revision = id->revision.empty() ? "main" : id->revision;
  auto commit = find_commit(resolved.revision, repo);
  if (!commit) return commit.error();
  if (commit->empty()) return absent(*id, repo);
  resolved.commit = *commit;
  resolved.path = repo / "snapshots" / *commit;
  if (!is_folder(resolved.path)) return absent(*id, repo);
  return resolved;
}

}  // namespace sterling::hub
