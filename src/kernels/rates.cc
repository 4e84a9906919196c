// Measured rates: which tier is fastest here, and what the machine reads per second.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <vector>

#include "kernels/dispatch.h"
#include "kernels/panels.h"
#include "platform/aligned_buffer.h"
#include "platform/float_env.h"

namespace sterling::kernels {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A product small enough for the second-level cache: 16 panels of 512 columns are 256 KiB.
struct Problem {
  static constexpr int kColumns = 512;
  static constexpr int kPanels = 16;

  explicit Problem(const KernelTable& table, int rows)
      : x(static_cast<std::size_t>(rows) * kColumns, 0.5F),
        w(panel_bytes_bf16(kColumns) / 2 * kPanels + 32, 0x3f00),
        packed(table.packed_x_bytes_bf16(rows, kColumns) + 64),
        out(static_cast<std::size_t>(rows) * kPanels * kLanes) {
    args.x = aligned(packed.data());
    args.w = aligned(w.data());
    args.out = out.data();
    args.ldo = static_cast<std::size_t>(kPanels) * kLanes;
    args.m = args.row_end = rows;
    args.k = kColumns;
    args.n = kPanels * kLanes;
    args.panel_end = kPanels;
    table.pack_x_bf16(x.data(), kColumns, rows, kColumns, 0, rows, aligned(packed.data()));
  }
  static void* aligned(void* p) {
    return reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(p) + 63) & ~std::uintptr_t{63});
  }
  double flops() const { return 2.0 * args.m * args.k * args.n; }

  std::vector<float> x;
  std::vector<std::uint16_t> w;
  std::vector<std::byte> packed;
  std::vector<float> out;
  GemmArgs args{};
};

}  // namespace

double measure_gemm_rate(const KernelTable& table, int rows, int rounds) {
  const platform::ComputeFloatScope scope;
  Problem problem(table, rows);
  table.gemm_bf16(&problem.args);  // brings code and data into the caches
  double best = 0.0;
  for (int round = 0; round < rounds; ++round) {
    constexpr double kRoundSeconds = 1.5e-3;
    int calls = 0;
    const auto start = Clock::now();
    double elapsed = 0.0;
    do {
      table.gemm_bf16(&problem.args);
      ++calls;
      elapsed = seconds_since(start);
    } while (elapsed < kRoundSeconds);
    best = std::max(best, problem.flops() * calls / elapsed * 1e-9);
  }
  return best;
}

Expected<HostRates> measure_rates(platform::ThreadPool& pool, const std::vector<TierState>& tiers) {
  HostRates rates;
  for (const TierState& state : tiers) {
    if (!state.usable) continue;
    const KernelTable& table = *state.tier.table();
    TierRate rate{state.tier.name, measure_gemm_rate(table), 0.0};
    std::vector<double> each(pool.threads(), 0.0);
    // One task per thread, all at once: a thread that took two would have measured alone.
    pool.parallel(pool.threads(), [&](std::size_t task, std::size_t) { each[task] = measure_gemm_rate(table, 36, 8); });
    for (const double one : each) rate.all_threads_gflops += one;
    rates.tiers.push_back(rate);
  }

  // Pure reading of 1 GiB (less on a small machine): sums of 64-bit words, which compilers vectorise well enough for memory.
  auto buffer = platform::AlignedBuffer::allocate(std::size_t{1} << 30, "bandwidth measurement");
  if (!buffer) buffer = platform::AlignedBuffer::allocate(std::size_t{1} << 28, "bandwidth measurement");
  if (!buffer) return buffer.error();
  const std::size_t pieces = 256;
  const auto words = buffer->as<std::uint64_t>();
  const std::size_t piece = words.size() / pieces;
  pool.parallel(pieces, [&](std::size_t i, std::size_t) {
    std::fill_n(words.begin() + static_cast<std::ptrdiff_t>(i * piece), piece, std::uint64_t{i});
  });
  std::atomic<std::uint64_t> total{0};
  for (std::size_t threads = 1;; threads = std::min(threads * 2, pool.threads())) {
    double best = 0.0;
    for (int round = 0; round < 3; ++round) {
      std::atomic<std::size_t> next{0};
      const auto start = Clock::now();
      pool.parallel(threads, [&](std::size_t, std::size_t) {
        for (std::size_t i = next++; i < pieces; i = next++) {
          const std::uint64_t* from = words.data() + i * piece;
          std::uint64_t sums[16] = {};  // eight 128-bit registers on plain x86-64
          for (std::size_t at = 0; at + 16 <= piece; at += 16) {
            for (std::size_t j = 0; j < 16; ++j) sums[j] += from[at + j];
          }
          std::uint64_t sum = 0;
          for (const std::uint64_t s : sums) sum += s;
          total += sum;
        }
      });
      best = std::max(best, static_cast<double>(words.size_bytes()) / seconds_since(start) * 1e-9);
    }
    rates.read_threads.push_back(threads);
    rates.read_gb_per_s.push_back(best);
    if (threads == pool.threads()) break;
  }
  return rates;
}

}  // namespace sterling::kernels
