#include "platform/thread_pool.h"

#include <sched.h>

#include <chrono>
#include <cstdio>
#include <numeric>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "platform/float_env.h"

namespace sterling::platform {
namespace {

std::unique_ptr<ThreadPool> make_pool(std::size_t threads,
                                      std::chrono::microseconds spin = std::chrono::microseconds{50}) {
  ThreadPool::Options options;
  options.threads = threads;
  options.spin = spin;
  auto pool = ThreadPool::create(std::move(options));
  EXPECT_TRUE(pool.ok());
  return std::move(pool).value();
}

TEST(ThreadPool, RunsEveryTaskOnceWithAValidThreadIndex) {
  for (const std::size_t threads : {1, 2, 3, 8}) {
    const auto pool = make_pool(threads);
    ASSERT_EQ(pool->threads(), threads);
    for (const std::size_t tasks : {0, 1, 2, 3, 7, 64, 1000}) {
      std::vector<int> runs(tasks, 0);  // each element belongs to one task: no lock
      std::atomic<bool> bad_thread{false};
      pool->parallel(tasks, [&](std::size_t task, std::size_t thread) {
        ++runs[task];
        if (thread >= threads) bad_thread = true;
      });
      EXPECT_EQ(runs, std::vector<int>(tasks, 1)) << threads << " threads, " << tasks << " tasks";
      EXPECT_FALSE(bad_thread);
    }
  }
}

// Thread indices are used for per-thread scratch: two tasks under one index must not overlap.
TEST(ThreadPool, OneTaskPerThreadIndexAtATime) {
  const auto pool = make_pool(4);
  std::vector<std::atomic<int>> inside(4);
  std::atomic<bool> overlap{false};
  for (int round = 0; round < 200; ++round) {
    pool->parallel(64, [&](std::size_t, std::size_t thread) {
      if (inside[thread].fetch_add(1) != 0) overlap = true;
      inside[thread].fetch_sub(1);
    });
  }
  EXPECT_FALSE(overlap);
}

// Regions back to back, with workers that spin, that park, and that come late for a region which is over.
TEST(ThreadPool, ManySmallRegionsWithParkedAndSpinningWorkers) {
  for (const int spin_us : {0, 1, 50}) {
    const auto pool = make_pool(3, std::chrono::microseconds{spin_us});
    std::vector<long> sums(8, 0);
    const int regions = 5000;
    for (int region = 0; region < regions; ++region) {
      pool->parallel(sums.size(), [&](std::size_t task, std::size_t) { sums[task] += region; });
      if (region % 1000 == 999) std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    const long expected = static_cast<long>(regions) * (regions - 1) / 2;
    EXPECT_EQ(sums, std::vector<long>(8, expected)) << "spin " << spin_us;
  }
}

TEST(ThreadPool, WaitsForALongTaskOfAWorker) {
  const auto pool = make_pool(2, std::chrono::microseconds{1});
  std::vector<int> done(2, 0);
  pool->parallel(2, [&](std::size_t task, std::size_t) {
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
    done[task] = 1;
  });
  EXPECT_EQ(done, (std::vector<int>{1, 1}));
}

TEST(ThreadPool, NestedCallsRunInlineUnderTheSameThreadIndex) {
  for (const std::size_t threads : {1, 2, 4}) {
    const auto pool = make_pool(threads);
    std::vector<int> runs(8 * 5, 0);
    std::atomic<bool> moved{false};
    pool->parallel(8, [&](std::size_t outer, std::size_t outer_thread) {
      const auto outer_id = std::this_thread::get_id();
      pool->parallel(5, [&](std::size_t inner, std::size_t inner_thread) {
        ++runs[outer * 5 + inner];
        if (inner_thread != outer_thread || std::this_thread::get_id() != outer_id) moved = true;
      });
    });
    EXPECT_EQ(runs, std::vector<int>(runs.size(), 1));
    EXPECT_FALSE(moved);
  }
}

TEST(ThreadPool, CallersFromSeveralThreadsTakeTurns) {
  const auto pool = make_pool(2);
  std::vector<std::thread> callers;
  std::vector<long> sums(4, 0);
  for (std::size_t c = 0; c < 4; ++c) {
    callers.emplace_back([&, c] {
      for (int region = 0; region < 300; ++region) {
        std::vector<long> parts(6, 0);
        pool->parallel(6, [&](std::size_t task, std::size_t) { parts[task] = static_cast<long>(task) + 1; });
        sums[c] += std::accumulate(parts.begin(), parts.end(), 0L);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sums, std::vector<long>(4, 300 * 21));
}

// 2^-149 * 1 is subnormal: DAZ reads it as zero; 2^-100 * 2^-100 underflows: FTZ makes it zero even as a normal product would
// have been subnormal (2^-75 * 2^-70 = 2^-145).
bool flushes_subnormals() {
  volatile float smallest = 0x1p-149f;
  volatile float one = 1.0f;
  volatile float a = 0x1p-75f;
  volatile float b = 0x1p-70f;
  volatile float loaded = smallest * one;
  volatile float product = a * b;
  return loaded == 0.0f && product == 0.0f;
}

TEST(ThreadPool, TasksFlushSubnormalsOnEveryThreadAndTheCallerGetsItsStateBack) {
  for (const std::size_t threads : {1, 2, 4}) {
    const auto pool = make_pool(threads);
    const std::uint32_t before = read_float_state();
    ASSERT_FALSE(flushes_subnormals());
    for (const std::size_t tasks : {1, 64}) {
      std::atomic<int> keeping{0};
      pool->parallel(tasks, [&](std::size_t, std::size_t) {
        if (!flushes_subnormals()) ++keeping;
      });
      EXPECT_EQ(keeping, 0);
    }
    EXPECT_EQ(read_float_state() & ~0x3fu, before & ~0x3fu);  // the low bits are sticky exception flags
    EXPECT_FALSE(flushes_subnormals());
  }
}

TEST(ThreadPool, RefusesAbsurdThreadCounts) {
  for (const std::size_t threads : {std::size_t{0}, ThreadPool::kMaxThreads + 1}) {
    ThreadPool::Options options;
    options.threads = threads;
    const auto pool = ThreadPool::create(options);
    ASSERT_FALSE(pool.ok());
    EXPECT_EQ(pool.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(pool.error().message.find(std::to_string(threads)), std::string::npos);
  }
}

TEST(ThreadPool, PinsToTheAffinityMaskAndNamesACpuThatIsNotThere) {
  cpu_set_t before;
  CPU_ZERO(&before);
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &before)) cpus.push_back(cpu);
  }
  ThreadPool::Options options;
  options.threads = 2;
  options.pin_cpus = cpus;
  auto pool = ThreadPool::create(options);
  ASSERT_TRUE(pool.ok());
  std::atomic<bool> strayed{false};
  std::atomic<int> others{0};
  for (int round = 0; round < 50; ++round) {
    (*pool)->parallel(16, [&](std::size_t, std::size_t thread) {
      if (thread == 0) return;
      ++others;
      if (sched_getcpu() != cpus[thread % cpus.size()]) strayed = true;
    });
  }
  EXPECT_FALSE(strayed);

  ASSERT_TRUE((*pool)->pin_caller().ok());
  EXPECT_EQ(sched_getcpu(), cpus.front());
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);

  options.pin_cpus = {CPU_SETSIZE};
  const auto refused = ThreadPool::create(options);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("CPU " + std::to_string(CPU_SETSIZE)), std::string::npos);
}

}  // namespace
}  // namespace sterling::platform
