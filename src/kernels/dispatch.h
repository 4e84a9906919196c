// Which kernel tier runs. The tiers give equal bits, so speed alone decides; which are usable is a matter of the CPU, the operating
// system and, for the BF16 dot product, a probe: the instruction's rounding is measured, not documented.
//
// The chosen table is a value that its user holds: there is no current tier, and two can be used side by side.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "kernels/contract.h"
#include "platform/cpu_features.h"
#include "platform/thread_pool.h"

namespace sterling::kernels {

struct Tier {
  std::string_view name;  // as --isa spells it
  const KernelTable* (*table)();
  bool uses_dot_product = false;
};

// All tiers compiled into this program, plainest first.
std::span<const Tier> compiled_tiers();

// Does the BF16 dot product round as the canonical chain does? Compares a tier's products with the scalar tier's over a few thousand hostile
// cases (subnormals, cancellation, huge values, infinities, NaN, ties) in the compute float environment. A few milliseconds.
struct ProbeResult {
  std::int64_t cases = 0;
  std::int64_t mismatches = 0;
  std::string first_mismatch;  // inputs and both results, as hexadecimal bits; empty when there is none
  bool canonical() const { return mismatches == 0; }
};
ProbeResult probe_dot_product(const KernelTable& table);

struct TierState {
  Tier tier;
  bool usable = false;
  std::string
      reason;  // why not: "the CPU lacks AVX-512 …", "the operating system does not save …", the probe's finding
  ProbeResult probe;  // of a tier with uses_dot_product that the host can run
};

// What this host can run; `features` for tests.
std::vector<TierState> inspect_tiers();
std::vector<TierState> inspect_tiers(const platform::CpuFeatures& features);

// `isa` is "auto" or a tier's name. auto: the fastest by a short measurement (some 20 ms). kInvalidArgument: no such name; the message
// lists what this host can run. kUnsupported: a tier this host can't run, and why.
Expected<const KernelTable*> select(std::string_view isa);
Expected<const KernelTable*> select(std::string_view isa, const std::vector<TierState>& tiers);

// GFLOP/s of gemm_bf16 on data that stays in the second-level cache, best of `rounds`, on the calling thread.
double measure_gemm_rate(const KernelTable& table, int rows = 36, int rounds = 3);

// For `sterling doctor`: rates on all threads of a pool. A few hundred milliseconds.
struct TierRate {
  std::string_view name;
  double one_thread_gflops = 0.0;
  double all_threads_gflops = 0.0;
};
struct HostRates {
  std::vector<TierRate> tiers;        // usable ones
  std::vector<double> read_gb_per_s;  // [t] with t + 1 threads, t + 1 = 1, 2, 4, … and all
  std::vector<std::size_t> read_threads;
};
Expected<HostRates> measure_rates(platform::ThreadPool& pool, const std::vector<TierState>& tiers);

}  // namespace sterling::kernels
