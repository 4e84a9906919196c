// What this process may use of its host: CPUs (affinity mask and cgroup CPU quota), memory (cgroup limits up the tree),
// huge pages, locked memory. A container or a systemd unit gets less than the machine has, and a server that sizes itself by
// the machine is throttled or killed.
//
// Everything is read from /proc and /sys, both cgroup versions (and the hybrid of the two). Tests give another root.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace sterling::platform {

struct HostLimits {
  // --- CPUs
  std::vector<int> affinity_cpus;   // the CPUs this process may run on, ascending
  std::vector<int> core_cpus;       // of those, the first of each physical core (all, when the topology is unknown)
  std::optional<double> cpu_quota;  // CPUs' worth of time per period, the smallest up the cgroup tree; none: unlimited
  std::string cpu_quota_source;     // the file that says so
  // Logical CPUs that may be kept busy: the affinity mask, cut to the quota (rounded down, see quota_cpus; at least 1).
  std::size_t usable_cpus = 1;
  // Default number of compute threads: one per physical core (vector units are shared by a core's hardware threads), cut to
  // the quota.
  std::size_t compute_threads = 1;

  // --- memory, bytes
  std::uint64_t memory_total = 0;                    // the machine's
  std::optional<std::uint64_t> cgroup_memory_limit;  // the smallest up the cgroup tree
  std::string cgroup_memory_source;                  // the file that says so
  std::uint64_t memory_limit = 0;                    // min of the two
  // What can still be taken without swapping or being killed: page cache counts as free, as the kernel would drop it.
  std::uint64_t memory_available = 0;

  // --- pages
  std::string transparent_huge_pages;  // "always", "madvise", "never"; "unknown" when the kernel doesn't say
  std::uint64_t hugetlb_page_bytes = 0;
  std::uint64_t hugetlb_pages_total = 0;
  std::uint64_t hugetlb_pages_free = 0;
  std::optional<std::uint64_t> memlock_limit;  // bytes this process may lock; none: unlimited
  bool memlock_known = false;
};

// `root` stands for "/". kIo: the kernel's own files can't be read or make no sense (no CPU, no memory).
Expected<HostLimits> read_host_limits(const std::string& root = "/");

// Whole CPUs in a quota. Rounded down, because a compute thread too many is throttled in the middle of a step and all others
// wait for it; 0.05 is forgiven so that 3.97 (a quota set in per cent) means 4. At least 1.
std::size_t quota_cpus(double quota);

// "0-3,8" -> {0, 1, 2, 3, 8}. Empty optional when the text is no such list, or names a CPU above 65535.
std::optional<std::vector<int>> parse_cpu_list(const std::string& text);

}  // namespace sterling::platform
