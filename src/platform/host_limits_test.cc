// Fixture trees in the shapes that real hosts show: a plain machine, a systemd unit with limits at two levels, a container
// with its own cgroup namespace, cgroup v1 with the container's subtree mounted, and a broken /proc.
#include "platform/host_limits.h"

#include <sched.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include <gtest/gtest.h>

namespace sterling::platform {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

class HostLimitsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("sterling_host_limits_" + std::to_string(::getpid()) + "_" +
                                         ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(root_);
    write("/proc/self/status", "Name:\tsterling\nCpus_allowed:\tff\nCpus_allowed_list:\t0-7\nMems_allowed_list:\t0\n");
    write("/proc/meminfo",
          "MemTotal:       33554432 kB\nMemFree:         1000000 kB\nMemAvailable:   16777216 kB\n"
          "HugePages_Total:      64\nHugePages_Free:       60\nHugepagesize:       2048 kB\n");
    write("/proc/self/limits",
          "Limit                     Soft Limit           Hard Limit           Units     \n"
          "Max file locks            unlimited            unlimited            locks     \n"
          "Max locked memory         8388608              unlimited            bytes     \n");
    write("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    const fs::path file = root_.string() + path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

  HostLimits read() {
    auto limits = read_host_limits(root_.string());
    EXPECT_TRUE(limits.ok()) << (limits.ok() ? "" : limits.error().message);
    return limits.ok() ? *limits : HostLimits{};
  }

  void use_cgroup2(const std::string& path) {
    write("/proc/self/cgroup", "0::" + path + "\n");
    write("/proc/self/mountinfo",
          "22 27 0:20 / /proc rw,nosuid - proc proc rw\n"
          "30 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n");
  }

  fs::path root_;
};

TEST_F(HostLimitsTest, PlainMachineWithoutCgroups) {
  const HostLimits limits = read();
  EXPECT_EQ(limits.affinity_cpus, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(limits.core_cpus, limits.affinity_cpus);
  EXPECT_FALSE(limits.cpu_quota.has_value());
  EXPECT_EQ(limits.usable_cpus, 8u);
  EXPECT_EQ(limits.compute_threads, 8u);
  EXPECT_EQ(limits.memory_total, 32 * kGiB);
  EXPECT_EQ(limits.memory_limit, 32 * kGiB);
  EXPECT_EQ(limits.memory_available, 16 * kGiB);
  EXPECT_FALSE(limits.cgroup_memory_limit.has_value());
  EXPECT_EQ(limits.transparent_huge_pages, "madvise");
  EXPECT_EQ(limits.hugetlb_page_bytes, 2u << 20);
  EXPECT_EQ(limits.hugetlb_pages_total, 64u);
  EXPECT_EQ(limits.hugetlb_pages_free, 60u);
  EXPECT_EQ(limits.memlock_limit, 8388608u);
  EXPECT_TRUE(limits.memlock_known);
}

TEST_F(HostLimitsTest, HardwareThreadsOfOneCoreCountOnceForCompute) {
  for (int cpu = 0; cpu < 8; ++cpu) {
    write("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list",
          std::to_string(cpu % 4) + "," + std::to_string(cpu % 4 + 4) + "\n");
  }
  const HostLimits limits = read();
  EXPECT_EQ(limits.core_cpus, (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(limits.usable_cpus, 8u);
  EXPECT_EQ(limits.compute_threads, 4u);
}

// systemd: the slice is smaller in memory, the unit in CPU. The unit is at its limit, mostly with page cache.
TEST_F(HostLimitsTest, SmallestLimitUpTheUnifiedTreeWins) {
  use_cgroup2("/llm.slice/sterling.service");
  write("/sys/fs/cgroup/llm.slice/cpu.max", "600000 100000\n");
  write("/sys/fs/cgroup/llm.slice/memory.max", std::to_string(8 * kGiB) + "\n");
  write("/sys/fs/cgroup/llm.slice/memory.high", "max\n");
  write("/sys/fs/cgroup/llm.slice/memory.current", std::to_string(8 * kGiB) + "\n");
  write("/sys/fs/cgroup/llm.slice/memory.stat", "anon 123\nfile 999\ninactive_file " + std::to_string(5 * kGiB) +
                                                    "\nactive_file " + std::to_string(1 * kGiB) + "\n");
  write("/sys/fs/cgroup/llm.slice/sterling.service/cpu.max", "250000 100000\n");
  write("/sys/fs/cgroup/llm.slice/sterling.service/memory.max", std::to_string(12 * kGiB) + "\n");
  write("/sys/fs/cgroup/llm.slice/sterling.service/memory.current", std::to_string(1 * kGiB) + "\n");
  const HostLimits limits = read();
  EXPECT_DOUBLE_EQ(limits.cpu_quota.value(), 2.5);
  EXPECT_EQ(limits.cpu_quota_source, "/sys/fs/cgroup/llm.slice/sterling.service/cpu.max");
  EXPECT_EQ(limits.usable_cpus, 2u);
  EXPECT_EQ(limits.compute_threads, 2u);
  EXPECT_EQ(limits.cgroup_memory_limit, 8 * kGiB);
  EXPECT_EQ(limits.cgroup_memory_source, "/sys/fs/cgroup/llm.slice/memory.max");
  EXPECT_EQ(limits.memory_limit, 8 * kGiB);
  EXPECT_EQ(limits.memory_available, 6 * kGiB);  // 8 - (8 used - 6 cache)
}

TEST_F(HostLimitsTest, MemoryHighIsALimitAndMaxIsNone) {
  use_cgroup2("/");
  write("/sys/fs/cgroup/cpu.max", "max 100000\n");
  write("/sys/fs/cgroup/memory.max", "max\n");
  write("/sys/fs/cgroup/memory.high", std::to_string(4 * kGiB) + "\n");
  const HostLimits limits = read();
  EXPECT_FALSE(limits.cpu_quota.has_value());
  EXPECT_EQ(limits.usable_cpus, 8u);
  EXPECT_EQ(limits.memory_limit, 4 * kGiB);
  EXPECT_EQ(limits.memory_available, 4 * kGiB);
}

TEST_F(HostLimitsTest, LimitAboveTheMachineChangesNothing) {
  use_cgroup2("/");
  write("/sys/fs/cgroup/cpu.max", "3200000 100000\n");
  write("/sys/fs/cgroup/memory.max", std::to_string(64 * kGiB) + "\n");
  const HostLimits limits = read();
  EXPECT_EQ(limits.usable_cpus, 8u);
  EXPECT_EQ(limits.memory_limit, 32 * kGiB);
  EXPECT_EQ(limits.memory_available, 16 * kGiB);
}

// Docker on a v1 host: paths count from the host's root, the mounts show the container's subtree.
TEST_F(HostLimitsTest, Version1InAContainer) {
  write("/proc/self/cgroup", "12:cpu,cpuacct:/docker/abc\n5:memory:/docker/abc\n1:name=systemd:/docker/abc\n");
  write("/proc/self/mountinfo",
        "40 39 0:30 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro,nosuid - cgroup cgroup rw,cpu,cpuacct\n"
        "41 39 0:31 /docker/abc /sys/fs/cgroup/memory ro,nosuid - cgroup cgroup rw,memory\n");
  write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "397000\n");
  write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", std::to_string(2 * kGiB) + "\n");
  write("/sys/fs/cgroup/memory/memory.usage_in_bytes", std::to_string(1 * kGiB) + "\n");
  write("/sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file " + std::to_string(kGiB / 2) + "\n");
  const HostLimits limits = read();
  EXPECT_DOUBLE_EQ(limits.cpu_quota.value(), 3.97);
  EXPECT_EQ(limits.usable_cpus, 4u);  // 0.05 is forgiven
  EXPECT_EQ(limits.memory_limit, 2 * kGiB);
  EXPECT_EQ(limits.memory_available, kGiB + kGiB / 2);
}

TEST_F(HostLimitsTest, Version1WithoutLimits) {
  write("/proc/self/cgroup", "12:cpu,cpuacct:/user.slice\n5:memory:/user.slice\n");
  write("/proc/self/mountinfo",
        "40 39 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
        "41 39 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  write("/sys/fs/cgroup/cpu,cpuacct/user.slice/cpu.cfs_quota_us", "-1\n");
  write("/sys/fs/cgroup/cpu,cpuacct/user.slice/cpu.cfs_period_us", "100000\n");
  write("/sys/fs/cgroup/memory/user.slice/memory.limit_in_bytes", "9223372036854771712\n");
  const HostLimits limits = read();
  EXPECT_FALSE(limits.cpu_quota.has_value());
  EXPECT_FALSE(limits.cgroup_memory_limit.has_value());
  EXPECT_EQ(limits.memory_limit, 32 * kGiB);
}

TEST_F(HostLimitsTest, AQuotaBelowOneCpuStillLeavesOne) {
  use_cgroup2("/");
  write("/sys/fs/cgroup/cpu.max", "20000 100000\n");
  EXPECT_EQ(read().usable_cpus, 1u);
}

TEST_F(HostLimitsTest, HostileCgroupTextSetsNoLimit) {
  use_cgroup2("/../../../other");
  write("/sys/fs/cgroup/cpu.max", "lots\n");
  write("/sys/fs/cgroup/memory.max", "-5 99999999999999999999\n");
  const HostLimits limits = read();
  EXPECT_FALSE(limits.cpu_quota.has_value());
  EXPECT_FALSE(limits.cgroup_memory_limit.has_value());
}

TEST_F(HostLimitsTest, BrokenProcIsAnErrorThatNamesTheFile) {
  write("/proc/self/status", "Cpus_allowed_list:\t3-1\n");
  const auto limits = read_host_limits(root_.string());
  ASSERT_FALSE(limits.ok());
  EXPECT_EQ(limits.error().code, ErrorCode::kIo);
  EXPECT_NE(limits.error().message.find("/proc/self/status"), std::string::npos);
  EXPECT_NE(limits.error().message.find("3-1"), std::string::npos);

  const auto nowhere = read_host_limits(root_.string() + "/absent");
  ASSERT_FALSE(nowhere.ok());
}

TEST_F(HostLimitsTest, UnlimitedAndUnknownLockedMemoryDiffer) {
  write("/proc/self/limits", "Max locked memory         unlimited            unlimited            bytes     \n");
  EXPECT_TRUE(read().memlock_known);
  EXPECT_FALSE(read().memlock_limit.has_value());
  write("/proc/self/limits", "");
  EXPECT_FALSE(read().memlock_known);
}

TEST(HostLimits, ThisMachineAgreesWithTheCLibrary) {
  const auto limits = read_host_limits();
  ASSERT_TRUE(limits.ok()) << limits.error().message;
  cpu_set_t set;
  CPU_ZERO(&set);
  ASSERT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  EXPECT_EQ(limits->affinity_cpus.size(), static_cast<std::size_t>(CPU_COUNT(&set)));
  EXPECT_GE(limits->usable_cpus, 1u);
  EXPECT_LE(limits->usable_cpus, limits->affinity_cpus.size());
  EXPECT_LE(limits->compute_threads, limits->usable_cpus);
  const auto pages = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES));
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGE_SIZE));
  EXPECT_LE(limits->memory_total, pages * page);  // a container's /proc may show less
  EXPECT_LE(limits->memory_available, limits->memory_limit);
}

TEST(ParseCpuList, AcceptsKernelListsOnly) {
  const std::map<std::string, std::vector<int>> good = {
      {"0", {0}}, {"0-3,8\n", {0, 1, 2, 3, 8}}, {"5,1-2", {1, 2, 5}}, {"7-7", {7}}};
  for (const auto& [text, cpus] : good) EXPECT_EQ(parse_cpu_list(text), cpus) << text;
  for (const char* text :
       {"", "\n", "a", "1-", "-1", "1--2", "3-1", "0,,1", "0-65536", "0-99999999999999999999", "0 1"}) {
    EXPECT_FALSE(parse_cpu_list(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace sterling::platform
