// Which tier runs: names, refusals, the probe.
#include "kernels/dispatch.h"

#include <algorithm>

#include <gmock/gmock.h>

#include "kernels/test_support.h"

namespace sterling::kernels {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

platform::CpuFeatures features(bool avx2, bool avx512, bool bf16) {
  platform::CpuFeatures f;
  f.avx2 = avx2;
  f.avx512 = avx512;
  f.avx512_bf16 = bf16;
  return f;
}

TEST(Dispatch, EveryTierNamesItself) {
  for (const Tier& tier : compiled_tiers()) {
    EXPECT_EQ(tier.table()->name, tier.name);
    EXPECT_GE(tier.table()->row_tile, 1);
  }
}

// What runs is what was asked for: the test of every tier this host has, by name.
TEST(Dispatch, ANamedTierIsSelected) {
  for (const TierState& state : inspect_tiers()) {
    const auto table = select(state.tier.name);
    ASSERT_EQ(table.ok(), state.usable) << state.tier.name << ": " << state.reason;
    if (!state.usable) continue;
    EXPECT_EQ(*table, state.tier.table());
    EXPECT_EQ((*table)->name, state.tier.name);
  }
}

TEST(Dispatch, AutoTakesAUsableTierAndNotTheScalarOneWhereThereIsAnother) {
  const auto states = inspect_tiers();
  const auto table = select("auto", states);
  ASSERT_TRUE(table.ok());
  const auto usable = std::count_if(states.begin(), states.end(), [](const TierState& s) { return s.usable; });
  EXPECT_TRUE(std::any_of(states.begin(), states.end(),
                          [&](const TierState& s) { return s.usable && s.tier.table() == *table; }));
  if (usable > 1) {
    EXPECT_STRNE((*table)->name, "scalar");
  }
}

TEST(Dispatch, AnUnknownNameListsWhatTheHostCanRun) {
  const auto table = select("sse9");
  ASSERT_FALSE(table.ok());
  EXPECT_EQ(table.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(table.error().message, AllOf(HasSubstr("sse9"), HasSubstr("auto, scalar")));
  EXPECT_EQ(table.error().where, "--isa");
  EXPECT_FALSE(select("").ok());
  EXPECT_FALSE(select("AVX2").ok());
}

#if defined(__x86_64__)

TEST(Dispatch, AMissingFeatureIsNamed) {
  const auto plain = inspect_tiers(features(false, false, false));
  EXPECT_THAT(select("avx2", plain).error().message,
              AllOf(HasSubstr("lacks AVX2"), HasSubstr("auto, scalar"), Not(HasSubstr("avx512,"))));
  EXPECT_EQ(select("avx2", plain).error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(select("avx512bf16", plain).error().message, HasSubstr("lacks AVX-512 ("));
  EXPECT_STREQ((*select("auto", plain))->name, "scalar");
  auto unsaved = features(false, false, false);
  unsaved.ymm_not_saved = unsaved.zmm_not_saved = true;
  EXPECT_THAT(select("avx2", inspect_tiers(unsaved)).error().message,
              HasSubstr("operating system does not save the AVX registers"));
  EXPECT_THAT(select("avx512", inspect_tiers(unsaved)).error().message,
              HasSubstr("does not save the AVX-512 registers"));
}

// A CPU whose instruction rounds otherwise: auto passes it over, asking for it by name fails with the finding.
TEST(Dispatch, ATierOutsideTheCanonicalClassIsRefused) {
  auto states = inspect_tiers(features(false, false, false));
  TierState& dot = states.back();
  ASSERT_TRUE(dot.tier.uses_dot_product);
  dot.probe = {4096, 3, "x …: 00000000, canonical 80000000"};
  dot.reason = "this CPU's BF16 dot product rounds otherwise";
  const auto table = select("avx512bf16", states);
  ASSERT_FALSE(table.ok());
  EXPECT_EQ(table.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(table.error().message, HasSubstr("rounds otherwise"));
  EXPECT_STREQ((*select("auto", states))->name, "scalar");
}

#endif

// A table whose product differs in the last bit of rare cases: even element first.
void pack_pairs(const float* x, std::size_t, int, int k, int, int, void* packed) {
  auto* out = static_cast<float*>(packed);
  for (int i = 0; i < k; ++i) out[i] = round_bf16(x[i]);
}
void even_first(const GemmArgs* a) {
  const auto* x = static_cast<const float*>(a->x);
  const auto* w = static_cast<const std::uint16_t*>(a->w);
  for (int lane = 0; lane < kLanes; ++lane) {
    float acc = 0.0F;
    for (int i = 0; i < a->k; ++i) acc = std::fmaf(x[i], to_float(bf16{w[(i / 2 * kLanes + lane) * 2 + i % 2]}), acc);
    a->out[lane] = acc;
  }
}

TEST(Probe, FindsAnotherOrderOfRoundings) {
  KernelTable other = *scalar_table();
  EXPECT_TRUE(probe_dot_product(other).canonical());
  other.pack_x_bf16 = pack_pairs;
  other.gemm_bf16 = even_first;
  const ProbeResult result = probe_dot_product(other);
  EXPECT_FALSE(result.canonical());
  EXPECT_GE(result.cases, 4000);
  EXPECT_THAT(result.first_mismatch, AllOf(HasSubstr("x "), HasSubstr("canonical ")));
}

TEST(Probe, HostTiersAreCanonical) {
  for (const KernelTable* table : host_tables()) {
    const ProbeResult result = probe_dot_product(*table);
    EXPECT_TRUE(result.canonical()) << table->name << ": " << result.first_mismatch;
  }
}

// The probe and the measurement leave the caller's float environment alone.
TEST(Probe, RestoresTheFloatEnvironment) {
  const std::uint32_t before = platform::read_float_state();
  probe_dot_product(*scalar_table());
  measure_gemm_rate(*scalar_table(), 2, 1);
  EXPECT_EQ(platform::read_float_state() & ~0x3fu, before & ~0x3fu);  // the low bits are sticky flags
}

TEST(Rates, MeasuresEveryUsableTierAndReading) {
  platform::ThreadPool::Options options;
  options.threads = 2;
  auto pool = platform::ThreadPool::create(options);
  ASSERT_TRUE(pool.ok());
  const auto states = inspect_tiers();
  const auto rates = measure_rates(**pool, states);
  ASSERT_TRUE(rates.ok());
  EXPECT_EQ(rates->tiers.size(), host_tables().size());
  for (const TierRate& rate : rates->tiers) {
    EXPECT_GT(rate.one_thread_gflops, 0.0);
    EXPECT_GT(rate.all_threads_gflops, 0.0);
  }
  EXPECT_EQ(rates->read_threads, (std::vector<std::size_t>{1, 2}));
  for (const double rate : rates->read_gb_per_s) EXPECT_GT(rate, 0.0);
}

}  // namespace
}  // namespace sterling::kernels
