#include "hub/pull.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "hub/cache_repo.h"
#include "hub/glob.h"
#include "hub/workers.h"

namespace sterling::hub {
namespace {

struct Chosen {
  ListedFile listed;
  std::optional<FileFacts> facts;  // none: linked already
  PulledFile result;
};

std::string with_unit(std::int64_t bytes) {
  const double gib = static_cast<double>(bytes) / (1 << 30);
  return gib >= 0.1 ? fmt::format("{:.2f} GiB", gib) : fmt::format("{} bytes", bytes);
}

class Pull {
 public:
  explicit Pull(const PullOptions& options)
      : options_(options), client_(options.client, options.repo), cache_(options.cache, options.repo) {}

  Expected<PullReport> run() {
    if (Status status = choose(); !status) return status.error();
    if (Status status = look_up(); !status) return status.error();
    auto wanted = plan();
    if (!wanted) return wanted.error();
    if (!options_.dry_run) {
      if (Status status = fetch(std::move(*wanted)); !status) return status.error();
    }
    for (Chosen& file : files_) report_.files.push_back(std::move(file.result));
    return std::move(report_);
  }

 private:
  std::string name() const { return fmt::format("{}@{}", options_.repo.text(), options_.revision); }

  // The commit, and the files of it that the user wants.
  Status choose() {
    HttpSession session(client_.http_options());
    auto info = client_.list(session, options_.revision);
    if (!info) return info.error();
    if (Status status = check_paths(info->files); !status) return status;
    report_.commit = info->commit;
    report_.snapshot = cache_.snapshot(info->commit);
    std::sort(info->files.begin(), info->files.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
    for (ListedFile& file : info->files) {
      if (!selected(file.path, options_.include, options_.exclude)) continue;
      Chosen chosen;
      chosen.result.path = file.path;
      chosen.result.size = file.size;
      chosen.listed = std::move(file);
      files_.push_back(std::move(chosen));
    }
    if (!files_.empty()) return {};
    return make_error(
        ErrorCode::kNotFound,
        info->files.empty()
            ? fmt::format("{} has no files", name())
            : fmt::format(
                  "none of the {} files of {} is chosen by --include and --exclude; patterns are compared with the "
                  "whole path (\"*.json\", \"folder/*\")",
                  info->files.size(), name()),
        options_.repo.text());
  }

  // Size and blob of every file that is not linked yet, from the hub.
  Status look_up() {
    std::vector<std::size_t> unknown;
    for (std::size_t i = 0; i < files_.size(); ++i) {
      Chosen& file = files_[i];
      const auto linked = cache_.linked(report_.commit, file.listed.path);
      if (linked && (!file.listed.size || *file.listed.size == linked->size)) {
        file.result.size = linked->size;
        file.result.blob = linked->blob;
      } else {
        unknown.push_back(i);
      }
    }
    const auto ask = [&](HttpSession& session, std::size_t i) -> Status {
      Chosen& file = files_[unknown[i]];
      auto facts = client_.head(session, report_.commit, file.listed);
      if (!facts) return facts.error();
      file.result.size = facts->size;
      file.result.blob = facts->blob;
      file.facts = std::move(*facts);
      return {};
    };
    return for_each(client_, options_.jobs, unknown.size(), ask, {});
  }

  // What has to be fetched, one entry per blob, and whether there is room for it.
  Expected<std::vector<WantedBlob>> plan() {
    std::map<std::string, WantedBlob> blobs;
    for (Chosen& file : files_) {
      const std::int64_t size = file.result.size.value_or(0);
      if (size > kMaxFileBytes - report_.bytes_total) {
        return make_error(
            ErrorCode::kCorrupt,
            fmt::format("{}: the sizes that the hub gives add up to more than {} bytes", name(), kMaxFileBytes));
      }
      report_.bytes_total += size;
      if (!file.facts) continue;
      WantedBlob& wanted = blobs[file.facts->blob];
      if (!wanted.paths.empty() && wanted.size != file.facts->size) {
        return make_error(ErrorCode::kCorrupt,
                          fmt::format("{}: the hub gives {} and {} the same hash and different sizes", name(),
                                      wanted.paths.front(), file.listed.path));
      }
      wanted.blob = file.facts->blob;
      wanted.size = file.facts->size;
      // A mirror may name files by something else than their hash; then the list's own hash counts.
      wanted.hash = hash_kind(wanted.blob) ? wanted.blob : file.listed.hash;
      wanted.paths.push_back(file.listed.path);
    }
    std::vector<WantedBlob> all;
    std::set<std::string> incomplete;
    std::int64_t needed = 0;
    for (auto& [blob, wanted] : blobs) {
      const auto there = cache_.blob_size(blob);
      const bool complete = there && (!wanted.size || *there == *wanted.size);
      std::int64_t has = complete ? *there : cache_.incomplete_size(blob).value_or(0);
      if (wanted.size && has > *wanted.size) has = 0;  // no beginning of it: it will be thrown away
      if (!complete) {
        needed += std::max<std::int64_t>(0, wanted.size.value_or(0) - has);
      }
      if (!complete) incomplete.insert(blob);
      all.push_back(std::move(wanted));
    }
    for (Chosen& file : files_) {
      if (!incomplete.contains(file.result.blob)) continue;
      file.result.state = options_.dry_run ? PullState::kMissing : PullState::kDownloaded;
    }
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.paths.front() < b.paths.front(); });
    report_.bytes_missing = needed;
    if (options_.dry_run || needed == 0) return all;
    auto available = free_bytes(options_.cache);
    if (!available) return available.error();
    if (needed <= *available) return all;
    return make_error(
        ErrorCode::kResourceExhausted,
        fmt::format(
            "{} needs {} more on disk, and {} has {} free; make room, set HF_HUB_CACHE to a folder with more, or "
            "leave files out with --exclude",
            name(), with_unit(needed), options_.cache.string(), with_unit(*available)),
        options_.cache.string());
  }

  Status fetch(std::vector<WantedBlob> wanted) {
    if (!wanted.empty()) {
      if (Status status = cache_.prepare(report_.commit); !status) return status;
    }
    std::int64_t before = report_.bytes_total;
    for (const WantedBlob& blob : wanted)
      before -= blob.size.value_or(0) * static_cast<std::int64_t>(blob.paths.size());
    std::int64_t total = before;
    for (const WantedBlob& blob : wanted) total += blob.size.value_or(0);
    Fetcher fetcher(client_, cache_, {options_.jobs, options_.part_bytes, report_.commit, options_.repo.text()},
                    std::move(wanted));
    const Status status = fetcher.run([&] {
      if (options_.progress) options_.progress({std::min(before + fetcher.position(), total), total});
    });
    report_.bytes_received = fetcher.received();
    if (!status) return status;
    return cache_.write_reference(options_.revision, report_.commit);
  }

  const PullOptions& options_;
  Client client_;
  CacheRepo cache_;
  std::vector<Chosen> files_;
  PullReport report_;
};

}  // namespace

std::string_view pull_state_name(PullState state) {
  switch (state) {
    case PullState::kCached: return "cached";
    case PullState::kDownloaded: return "downloaded";
    case PullState::kMissing: return "missing";
  }
  return "cached";
}

Expected<PullReport> pull(const PullOptions& options) {
  return Pull(options).run();
}

}  // namespace sterling::hub
