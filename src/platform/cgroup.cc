// Formats: kernel documentation, admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst; /proc/self/cgroup in cgroups(7);
// /proc/self/mountinfo in proc(5).
#include "platform/cgroup.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>

#include "platform/small_file.h"

namespace sterling::platform {
namespace {

struct Hierarchy {
  bool v2 = false;
  std::string mount_point;  // inside root
  std::string mount_root;   // the cgroup that is mounted there
  std::string path;         // this process's cgroup
};

bool lists(std::string_view comma_separated, std::string_view name) {
  const auto names = split(comma_separated, ',');
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The mount of the hierarchy with `controller` (v1), or of the unified one (empty controller).
bool find_mount(std::string_view mountinfo, std::string_view controller, Hierarchy* out) {
  for (const std::string_view line : split(mountinfo, '\n')) {
    // "36 35 98:0 /root /mount/point options … - fstype source super-options"
    const std::size_t dash = line.find(" - ");
    if (dash == std::string_view::npos) continue;
    const auto before = split_words(line.substr(0, dash));
    const auto after = split_words(line.substr(dash + 3));
    if (before.size() < 5 || after.empty()) continue;
    const bool wanted = controller.empty() ? after[0] == "cgroup2"
                                           : after[0] == "cgroup" && after.size() >= 3 && lists(after[2], controller);
    if (!wanted) continue;
    out->mount_root = before[3];
    out->mount_point = before[4];
    return true;
  }
  return false;
}

bool find_path(std::string_view cgroups, std::string_view controller, Hierarchy* out) {
  for (const std::string_view line : split(cgroups, '\n')) {
    // "4:memory:/path" (v1) or "0::/path" (v2)
    const std::size_t first = line.find(':');
    if (first == std::string_view::npos) continue;
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const bool wanted = controller.empty() ? controllers.empty() : lists(controllers, controller);
    if (!wanted) continue;
    out->path = line.substr(second + 1);
    return true;
  }
  return false;
}

// Calls visit(folder) for the process's group and each of its parents up to the mount, root prefix not included.
void for_each_level(const Hierarchy& h, const std::function<void(const std::string& folder)>& visit) {
  // Inside a container the mount may show only the container's own subtree, while the path still counts from the host's root.
  std::string relative = h.path;
  if (h.mount_root != "/" && relative.starts_with(h.mount_root)) relative.erase(0, h.mount_root.size());
  if (relative.find("/..") != std::string::npos)
    relative.clear();  // the group lies outside of the mount: its top binds us
  while (!relative.empty() && relative.back() == '/') relative.pop_back();
  for (;;) {
    visit(h.mount_point + relative);
    if (relative.empty()) return;
    const std::size_t slash = relative.rfind('/');
    relative.erase(slash == std::string::npos ? 0 : slash);
  }
}

class Reader {
 public:
  explicit Reader(const std::string& root) : root_(root) {}

  CgroupLimits read() {
    const std::string mountinfo = text("/proc/self/mountinfo");
    const std::string cgroups = text("/proc/self/cgroup");
    // A v1 controller is not on the unified hierarchy, and the other way round: at most one of each pair says anything.
    for (const std::string_view controller : {"", "cpu", "memory"}) {
      Hierarchy h;
      h.v2 = controller.empty();
      if (!find_mount(mountinfo, controller, &h) || !find_path(cgroups, controller, &h)) continue;
      for_each_level(h, [&](const std::string& folder) {
        if (h.v2 || controller == "cpu") read_cpu(folder, h.v2);
        if (h.v2 || controller == "memory") read_memory(folder, h.v2);
      });
    }
    return std::move(limits_);
  }

 private:
  std::string text(const std::string& path) const { return read_small_file(root_ + path).value_or(std::string()); }
  std::optional<std::uint64_t> number(const std::string& path) const { return parse_unsigned(text(path)); }

  void read_cpu(const std::string& folder, bool v2) {
    std::optional<std::uint64_t> quota;
    std::optional<std::uint64_t> period;
    std::string source = folder + (v2 ? "/cpu.max" : "/cpu.cfs_quota_us");
    if (v2) {
      const std::string line = text(source);  // "max 100000" or "150000 100000"
      const auto words = split_words(line);
      if (words.size() == 2) {
        quota = parse_unsigned(words[0]);
        period = parse_unsigned(words[1]);
      }
    } else {
      quota = number(source);  // -1 without a limit, which is no unsigned number
      period = number(folder + "/cpu.cfs_period_us");
    }
    if (!quota || !period || *quota == 0 || *period == 0) return;
    const double cpus = static_cast<double>(*quota) / static_cast<double>(*period);
    if (limits_.cpu_quota && *limits_.cpu_quota <= cpus) return;
    limits_.cpu_quota = cpus;
    limits_.cpu_quota_source = std::move(source);
  }

  void read_memory(const std::string& folder, bool v2) {
    if (!v2) {
      read_memory_file(folder, "/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_");
      return;
    }
    read_memory_file(folder, "/memory.max", "/memory.current", "");
    // Above memory.high the kernel reclaims and stalls the group: for a server that is a limit too.
    read_memory_file(folder, "/memory.high", "/memory.current", "");
  }

  void read_memory_file(const std::string& folder, const char* limit_file, const char* use_file,
                        const std::string& stat_prefix) {
    // "max" (v2) is no number; v1 prints the largest page-aligned signed number.
    const auto limit = number(folder + limit_file);
    if (!limit || *limit >= std::uint64_t{1} << 62) return;
    if (!limits_.memory_limit || *limit < *limits_.memory_limit) {
      limits_.memory_limit = *limit;
      limits_.memory_source = folder + limit_file;
    }
    const auto use = number(folder + use_file);
    if (!use) return;
    const std::string stat = text(folder + "/memory.stat");
    std::uint64_t cache = 0;
    for (const char* key : {"inactive_file", "active_file"}) {
      if (const auto value = line_value(stat, stat_prefix + key)) cache += parse_unsigned(*value).value_or(0);
    }
    const std::uint64_t held = *use - std::min(*use, cache);
    const std::uint64_t available = *limit - std::min(*limit, held);
    limits_.memory_available = std::min(available, limits_.memory_available.value_or(available));
  }

  const std::string& root_;
  CgroupLimits limits_;
};

}  // namespace

CgroupLimits read_cgroup_limits(const std::string& root) {
  return Reader(root).read();
}

}  // namespace sterling::platform
