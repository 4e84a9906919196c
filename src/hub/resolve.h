// MODEL as the user wrote it → a path on this machine. Reads directories, never the network. Thread-safe.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "hub/locations.h"
#include "hub/names.h"

namespace sterling::hub {

struct ResolvedModel {
  std::filesystem::path path;
  std::optional<RepoId> repo;  // set when the cache was asked
  std::string revision;        // "main" when none was given
  std::string commit;
};

// A path that exists wins over a hub id of the same spelling. Text that can't be a hub id is returned as the path that it is: whoever
// opens it says what is wrong. Otherwise the snapshot of ORG/NAME[@REVISION] in the cache; the revision is looked up as a reference (branch,
// tag), as a commit hash, as the beginning of one. kNotFound says where was looked, which revisions are there, and how to fetch it.
Expected<ResolvedModel> resolve_model(std::string_view model, const Locations& locations);

}  // namespace sterling::hub
