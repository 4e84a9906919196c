#include "platform/host_limits.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

#include "platform/cgroup.h"
#include "platform/small_file.h"

namespace sterling::platform {
namespace {

constexpr int kMaxCpuNumber = 65535;

Error unreadable(const std::string& path, const std::string& what) {
  return make_error(ErrorCode::kIo, path + ": " + what, path);
}

// "MemTotal: 24619200 kB" -> bytes
std::optional<std::uint64_t> meminfo_bytes(const std::string& meminfo, std::string_view key) {
  const auto value = line_value(meminfo, key);
  if (!value) return std::nullopt;
  const auto words = split_words(*value);
  if (words.empty()) return std::nullopt;
  const auto number = parse_unsigned(words[0]);
  if (!number) return std::nullopt;
  return words.size() > 1 && words[1] == "kB" ? *number * 1024 : *number;
}

// Of `cpus` the first of each physical core. A CPU whose siblings can't be read counts as a core of its own.
std::vector<int> first_of_each_core(const std::string& root, const std::vector<int>& cpus) {
  std::vector<int> cores;
  std::set<std::string> seen;
  for (const int cpu : cpus) {
    const std::string path =
        root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list";
    const auto siblings = read_small_file(path);
    if (siblings && !seen.insert(*siblings).second) continue;
    cores.push_back(cpu);
  }
  return cores;
}

// "always [madvise] never" -> "madvise"
std::string chosen_word(const std::optional<std::string>& text) {
  if (!text) return "unknown";
  const std::size_t open = text->find('[');
  const std::size_t close = text->find(']');
  if (open == std::string::npos || close == std::string::npos || close < open) return "unknown";
  return text->substr(open + 1, close - open - 1);
}

void read_memlock(const std::string& root, HostLimits* limits) {
  // "Max locked memory         8388608              8388608              bytes"
  const std::string text = read_small_file(root + "/proc/self/limits").value_or(std::string());
  const auto value = line_value(text, "Max locked memory");
  if (!value) return;
  const auto words = split_words(*value);
  if (words.empty()) return;
  const auto soft = parse_unsigned(words[0]);
  limits->memlock_known = soft.has_value() || words[0] == "unlimited";
  limits->memlock_limit = soft;
}

}  // namespace

std::size_t quota_cpus(double quota) {
  const double whole = std::floor(quota + 0.05);
  return whole < 1.0 ? 1 : static_cast<std::size_t>(whole);
}

std::optional<std::vector<int>> parse_cpu_list(const std::string& text) {
  const auto words = split_words(text);
  if (words.size() != 1) return std::nullopt;
  std::set<int> cpus;
  for (const std::string_view range : split(words[0], ',')) {
    const auto ends = split(range, '-');
    if (ends.size() > 2) return std::nullopt;
    const auto first = parse_unsigned(ends.front());
    const auto last = parse_unsigned(ends.back());
    if (!first || !last || *first > *last || *last > kMaxCpuNumber) return std::nullopt;
    for (auto cpu = *first; cpu <= *last; ++cpu) cpus.insert(static_cast<int>(cpu));
  }
  return std::vector<int>(cpus.begin(), cpus.end());
}

Expected<HostLimits> read_host_limits(const std::string& root_folder) {
  std::string root = root_folder;
  while (!root.empty() && root.back() == '/') root.pop_back();
  HostLimits limits;

  const std::string status_path = root + "/proc/self/status";
  const auto status = read_small_file(status_path);
  if (!status) return unreadable(status_path, "cannot be read; it tells which CPUs this process may use");
  const auto allowed = line_value(*status, "Cpus_allowed_list");
  const auto cpus = allowed ? parse_cpu_list(std::string(*allowed)) : std::nullopt;
  if (!cpus) {
    return unreadable(status_path, "Cpus_allowed_list is '" + std::string(allowed.value_or("")) +
                                       "'; expected a list of CPU numbers such as 0-3,8");
  }
  limits.affinity_cpus = *cpus;
  limits.core_cpus = first_of_each_core(root, limits.affinity_cpus);

  const CgroupLimits cgroup = read_cgroup_limits(root);
  limits.cpu_quota = cgroup.cpu_quota;
  limits.cpu_quota_source = cgroup.cpu_quota_source;
  limits.usable_cpus = limits.affinity_cpus.size();
  limits.compute_threads = limits.core_cpus.size();
  if (limits.cpu_quota) {
    limits.usable_cpus = std::min(limits.usable_cpus, quota_cpus(*limits.cpu_quota));
    limits.compute_threads = std::min(limits.compute_threads, quota_cpus(*limits.cpu_quota));
  }

  const std::string meminfo_path = root + "/proc/meminfo";
  const std::string meminfo = read_small_file(meminfo_path).value_or(std::string());
  const auto total = meminfo_bytes(meminfo, "MemTotal");
  if (!total || *total == 0) return unreadable(meminfo_path, "has no MemTotal line");
  limits.memory_total = *total;
  limits.cgroup_memory_limit = cgroup.memory_limit;
  limits.cgroup_memory_source = cgroup.memory_source;
  limits.memory_limit = std::min(*total, cgroup.memory_limit.value_or(*total));
  limits.memory_available = std::min(limits.memory_limit, meminfo_bytes(meminfo, "MemAvailable").value_or(*total));
  if (cgroup.memory_available) limits.memory_available = std::min(limits.memory_available, *cgroup.memory_available);

  limits.transparent_huge_pages = chosen_word(read_small_file(root + "/sys/kernel/mm/transparent_hugepage/enabled"));
  limits.hugetlb_page_bytes = meminfo_bytes(meminfo, "Hugepagesize").value_or(0);
  limits.hugetlb_pages_total = meminfo_bytes(meminfo, "HugePages_Total").value_or(0);
  limits.hugetlb_pages_free = meminfo_bytes(meminfo, "HugePages_Free").value_or(0);
  read_memlock(root, &limits);
  return limits;
}

}  // namespace sterling::platform
