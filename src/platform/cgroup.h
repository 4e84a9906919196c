// The cgroup limits that bind this process, cgroup v1, v2 or both mounted side by side. A parent's limit binds its children, so
// every level from the process's own group up to the mount is asked and the smallest wins.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace sterling::platform {

struct CgroupLimits {
  std::optional<double> cpu_quota;  // CPUs
  std::string cpu_quota_source;
  std::optional<std::uint64_t> memory_limit;  // bytes
  std::string memory_source;
  // The smallest of (limit - use) over all levels with a limit, page cache not counted as use.
  std::optional<std::uint64_t> memory_available;
};

// `root` is a folder that stands for "/", without a slash at its end ("" for the machine itself). Files that are missing or
// unreadable set no limit.
CgroupLimits read_cgroup_limits(const std::string& root);

}  // namespace sterling::platform
