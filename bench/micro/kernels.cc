// Google Benchmark over the same workloads, per tier: absolute rates, for comparing two builds. bench_roofline judges against the machine.
#include <string>

#include <benchmark/benchmark.h>

#include "kernels/dispatch.h"
#include "workloads.h"

namespace sterling::bench {
namespace {

platform::ThreadPool& one_thread() {
  static const auto pool = platform::ThreadPool::create({});
  return **pool;
}

template <class Workload>
void measure(benchmark::State& state, Workload& workload) {
  for (auto _ : state) workload.run();
  const auto iterations = static_cast<double>(state.iterations());
  state.counters["bytes/s"] = benchmark::Counter(workload.bytes() * iterations, benchmark::Counter::kIsRate);
  if constexpr (requires { workload.flops(); }) {
    state.counters["flop/s"] = benchmark::Counter(workload.flops() * iterations, benchmark::Counter::kIsRate);
  } else {
    state.counters["token-heads/s"] =
        benchmark::Counter(workload.token_heads() * iterations, benchmark::Counter::kIsRate);
  }
}

void add_tier(const kernels::KernelTable& table) {
  const std::string tier = table.name;
  for (const int m : {1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 67}) {
    benchmark::RegisterBenchmark((tier + "/gemm_bf16_in_L2/m:" + std::to_string(m)).c_str(),
                                 [&table, m](benchmark::State& state) {
                                   GemmWorkload workload(table, one_thread(), Weights::kBf16, m, 1024, 256, 1);
                                   measure(state, workload);
                                 });
  }
  for (const Weights type : {Weights::kFp8, Weights::kFp8Block, Weights::kNvfp4, Weights::kMxfp4, Weights::kMxfp8}) {
    for (const int m : {1, 4, 8, 64}) {
      benchmark::RegisterBenchmark((tier + "/gemm_" + weights_name(type) + "_in_L2/m:" + std::to_string(m)).c_str(),
                                   [&table, type, m](benchmark::State& state) {
                                     GemmWorkload workload(table, one_thread(), type, m, 1024, 256, 1);
                                     measure(state, workload);
                                   });
    }
  }
  for (const int m : {1, 12, 64}) {
    benchmark::RegisterBenchmark((tier + "/gemm_f32_in_L2/m:" + std::to_string(m)).c_str(),
                                 [&table, m](benchmark::State& state) {
                                   GemmWorkload workload(table, one_thread(), Weights::kF32, m, 1024, 128, 1);
                                   measure(state, workload);
                                 });
  }
  for (const int m : {1, 8, 64}) {
    benchmark::RegisterBenchmark((tier + "/attention_512_tokens_128/m:" + std::to_string(m)).c_str(),
                                 [&table, m](benchmark::State& state) {
                                   AttentionWorkload workload(table, one_thread(), 1, 512, m, 128);
                                   measure(state, workload);
                                 });
  }
  for (const int tokens : {1, 64}) {
    benchmark::RegisterBenchmark((tier + "/gdn_128x128/tokens:" + std::to_string(tokens)).c_str(),
                                 [&table, tokens](benchmark::State& state) {
                                   GdnWorkload workload(table, one_thread(), 1, tokens, 128, 128);
                                   measure(state, workload);
                                 });
  }
}

}  // namespace
}  // namespace sterling::bench

int main(int argc, char** argv) {
  for (const auto& state : sterling::kernels::inspect_tiers()) {
    if (state.usable) sterling::bench::add_tier(*state.tier.table());
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
