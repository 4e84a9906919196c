// Kernels against the roof of this machine, measured in the same run: t_roof = max(bytes / read bandwidth, flops / best multiply-add rate).
// Rounds are interleaved (read, multiply-add peak, every workload, and again), and ratios are taken within a round, so that a busy
// neighbour hits both sides; the median of the rounds is printed.
//
//   bench_roofline [--threads N] [--isa NAME] [--rounds N] [--filter TEXT] [--cpu-time] [--json]
//
// --cpu-time counts the calling thread's CPU time instead of the wall clock's: with one thread on a machine that others keep busy too.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "kernels/dispatch.h"
#include "peak.h"
#include "platform/cpu_features.h"
#include "workloads.h"

namespace sterling::bench {
namespace {

struct Options {
  std::size_t threads = 2;
  std::string isa = "auto";
  std::string filter;
  int rounds = 7;
  bool json = false;
  bool cpu_time = false;
};

struct Row {
  std::string name;
  double flops = 0.0;
  double bytes = 0.0;
  std::function<void()> run;
  std::vector<double> seconds;
  std::vector<double> ratios;
  bool fp32 = false;  // its roof is the FP32 multiply-add rate, whatever the tier has for BF16
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0.0 : values[values.size() / 2];
}

double now(bool cpu_time) {
  if (!cpu_time) return seconds_now();
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

double time_of(const std::function<void()>& run, bool cpu_time) {
  const double start = now(cpu_time);
  run();
  return now(cpu_time) - start;
}

// Best of a few: at least 60 ms each. The peak is what the machine can do, not what it does on average.
double measure_peak(platform::ThreadPool& pool, PeakLoop loop, bool cpu_time) {
  double best = 0.0;
  for (int i = 0; i < 3; ++i) {
    constexpr long kIterations = 1'500'000;
    std::vector<double> done(pool.threads(), 0.0);
    const double elapsed = time_of(
        [&] { pool.parallel(pool.threads(), [&](std::size_t task, std::size_t) { done[task] = loop(kIterations); }); },
        cpu_time);
    double total = 0.0;
    for (const double d : done) total += d;
    best = std::max(best, total / elapsed);
  }
  return best;
}

template <class Workload, class... Args>
void add(std::vector<Row>& rows, const Options& options, const std::string& name, Args&&... args) {
  if (name.find(options.filter) == std::string::npos) return;
  auto workload = std::make_shared<Workload>(std::forward<Args>(args)...);
  Row row;
  row.name = name;
  row.bytes = workload->bytes();
  if constexpr (requires { workload->flops(); }) {
    row.flops = workload->flops();
  } else {
    row.flops =
        workload->token_heads() * 8.0 * 128 * 128;  // 4 vector operations per state element, counted as multiply-adds
  }
  row.fp32 = name.starts_with("gemm_f32") || name.starts_with("gdn");
  row.run = [workload] { workload->run(); };
  rows.push_back(std::move(row));
}

std::vector<Row> make_rows(const Options& options, const kernels::KernelTable& table, platform::ThreadPool& pool) {
  std::vector<Row> rows;
  // Decode: 1 GiB of weights, as 40 matrices of 4096 x 3328 would be.
  for (const int m : {1, 2, 4, 8, 16}) {
    add<GemmWorkload>(rows, options, fmt::format("gemm_bf16 m={} k=4096 (1 GiB)", m), table, pool, Weights::kBf16, m,
                      4096, 3328, 40);
  }
  add<GemmWorkload>(rows, options, "gemm_bf16 m=1 k=576 (1 GiB)", table, pool, Weights::kBf16, 1, 576, 1536, 608);
  add<GemmWorkload>(rows, options, "gemm_bf16 m=1 k=17408 (1 GiB)", table, pool, Weights::kBf16, 1, 17408, 5120, 6);
  add<GemmWorkload>(rows, options, "gemm_f32 m=1 k=4096 (1 GiB)", table, pool, Weights::kF32, 1, 4096, 3328, 20);
  // Coded weights: decode over 256 MiB, and prefill of 64 rows over weights that do not fit the caches.
  for (const Weights type : {Weights::kFp8, Weights::kFp8Block, Weights::kNvfp4, Weights::kMxfp4, Weights::kMxfp8}) {
    const bool four_bit = type == Weights::kNvfp4 || type == Weights::kMxfp4;
    for (const int m : {1, 2, 4, 8}) {
      add<GemmWorkload>(rows, options, fmt::format("gemm_{} m={} k=4096 (256 MiB)", weights_name(type), m), table, pool,
                        type, m, 4096, 3328, four_bit ? 36 : 20);
    }
    for (const int m : {16, 64, 512}) {
      add<GemmWorkload>(rows, options, fmt::format("gemm_{} m={} k=4096", weights_name(type), m), table, pool, type, m,
                        4096, 3328, 4);
    }
  }
  // Prefill.
  for (const int m : {64, 67, 512}) {
    for (const int k : {576, 4096, 17408}) {
      const int n = std::max(128, 1'500'000 / k / 16 * 16);
      add<GemmWorkload>(rows, options, fmt::format("gemm_bf16 m={} k={}", m, k), table, pool, Weights::kBf16, m, k, n,
                        512 / m);
    }
  }
  for (const int k : {576, 4096}) {
    add<GemmWorkload>(rows, options, fmt::format("gemm_f32 m=256 k={}", k), table, pool, Weights::kF32, 256, k, 512, 1);
  }
  for (const int m : {1, 4, 7, 8, 16}) {
    add<AttentionWorkload>(rows, options, fmt::format("attention decode m={} head_dim=128, 8192 tokens", m), table,
                           pool, 64, 8192, m, 128);
  }
  add<AttentionWorkload>(rows, options, "attention decode m=8 head_dim=256, 8192 tokens", table, pool, 32, 8192, 8,
                         256);
  for (const int m : {64, 512}) {
    add<AttentionWorkload>(rows, options, fmt::format("attention prefill m={} head_dim=128, 2048 tokens", m), table,
                           pool, 8, 2048, m, 128);
  }
  add<GdnWorkload>(rows, options, "gdn 128x128 prefill 256 tokens", table, pool, 16, 256, 128, 128);
  add<GdnWorkload>(rows, options, "gdn 128x128 decode (1 token, 4096 states)", table, pool, 4096, 1, 128, 128);
  return rows;
}

int run(const Options& options) {
  auto table = kernels::select(options.isa);
  if (!table) {
    fmt::print(stderr, "{}\n", table.error().message);
    return 2;
  }
  platform::ThreadPool::Options pool_options;
  pool_options.threads = options.threads;
  auto pool = platform::ThreadPool::create(pool_options);
  if (!pool) {
    fmt::print(stderr, "{}\n", pool.error().message);
    return 1;
  }
  if (options.cpu_time && options.threads != 1) {
    fmt::print(stderr, "--cpu-time needs --threads 1\n");
    return 2;
  }
  const auto peak_of_tier = peak_loop((*table)->name);
  const auto fp32_peak = std::strcmp((*table)->name, "avx512bf16") == 0 ? peak_loop("avx512") : peak_of_tier;
  ReadWorkload read(**pool, std::size_t{1} << 30);
  std::vector<Row> rows = make_rows(options, **table, **pool);
  for (Row& row : rows) row.run();
  std::vector<double> reads, peaks;
  for (int round = 0; round < options.rounds; ++round) {
    for (Row& row : rows) {
      const double bandwidth = read.bytes() / std::min(time_of([&] { read.run(); }, options.cpu_time),
                                                       time_of([&] { read.run(); }, options.cpu_time));
      const auto loop = row.fp32 ? fp32_peak : peak_of_tier;
      const double peak = loop == nullptr ? 0.0 : measure_peak(**pool, loop, options.cpu_time);
      const double seconds = std::min(time_of(row.run, options.cpu_time), time_of(row.run, options.cpu_time));
      const double roof = std::max(row.bytes / bandwidth, peak == 0.0 ? 0.0 : row.flops / peak);
      row.seconds.push_back(seconds);
      row.ratios.push_back(roof / seconds);
      reads.push_back(bandwidth);
      if (!row.fp32) peaks.push_back(peak);
    }
  }
  const std::string machine = platform::machine_class(platform::detect_cpu_features());
  if (options.json) {
    fmt::print(
        "{{\"machine\":\"{}\",\"isa\":\"{}\",\"threads\":{},\"read_gb_per_s\":{:.2f},\"peak_gflops\":{:.1f},\"rows\":[",
        machine, (*table)->name, options.threads, median(reads) * 1e-9, median(peaks) * 1e-9);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const double seconds = median(rows[i].seconds);
      fmt::print("{}{{\"name\":\"{}\",\"seconds\":{:.6f},\"gflops\":{:.2f},\"gb_per_s\":{:.2f},\"of_roof\":{:.3f}}}",
                 i == 0 ? "" : ",", rows[i].name, seconds, rows[i].flops / seconds * 1e-9,
                 rows[i].bytes / seconds * 1e-9, median(rows[i].ratios));
    }
    fmt::print("]}}\n");
    return 0;
  }
  fmt::print("{} · tier {} · {} threads · read {:.1f} GB/s · multiply-add peak {:.0f} GFLOP/s · median of {}\n",
             machine, (*table)->name, options.threads, median(reads) * 1e-9, median(peaks) * 1e-9, options.rounds);
  fmt::print("{:<50} {:>10} {:>9} {:>9} {:>8}\n", "workload", "ms", "GFLOP/s", "GB/s", "of roof");
  for (const Row& row : rows) {
    const double seconds = median(row.seconds);
    fmt::print("{:<50} {:>10.3f} {:>9.1f} {:>9.2f} {:>8.2f}\n", row.name, seconds * 1e3, row.flops / seconds * 1e-9,
               row.bytes / seconds * 1e-9, median(row.ratios));
  }
  return 0;
}

}  // namespace
}  // namespace sterling::bench

int main(int argc, char** argv) {
  sterling::bench::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    if (flag == "--json") {
      options.json = true;
      continue;
    }
    if (flag == "--cpu-time") {
      options.cpu_time = true;
      continue;
    }
    ++i;
    if (flag == "--threads") {
      options.threads = static_cast<std::size_t>(std::max(1, std::atoi(value)));
    } else if (flag == "--isa") {
      options.isa = value;
    } else if (flag == "--filter") {
      options.filter = value;
    } else if (flag == "--rounds") {
      options.rounds = std::max(1, std::atoi(value));
    } else {
      fmt::print(stderr,
                 "unknown flag {}; known: --threads N, --isa NAME, --filter TEXT, --rounds N, --cpu-time, --json\n",
                 flag);
      return 2;
    }
  }
  return sterling::bench::run(options);
}
