#include "kernels/dispatch.h"

#include <algorithm>

#include <fmt/format.h>

#include "kernels/tiers.h"

namespace sterling::kernels {
namespace {

// Why the host can't run `name`, by its features; empty when it can.
std::string missing_feature(std::string_view name, const platform::CpuFeatures& features) {
  if (name == "scalar" || platform::isa_usable(features, name)) return {};
  if (name == "avx2") {
    return features.ymm_not_saved ? "the operating system does not save the AVX registers"
                                  : "the CPU lacks AVX2 or FMA";
  }
  if (features.zmm_not_saved) return "the operating system does not save the AVX-512 registers";
  if (!features.avx512) return "the CPU lacks AVX-512 (F, BW, DQ and VL are needed)";
  return "the CPU lacks the AVX-512 BF16 dot product";
}

std::string usable_names(const std::vector<TierState>& tiers) {
  std::string names = "auto";
  for (const TierState& state : tiers) {
    if (state.usable) names += fmt::format(", {}", state.tier.name);
  }
  return names;
}

}  // namespace

std::span<const Tier> compiled_tiers() {
  static constexpr Tier kTiers[] = {
    {"scalar", scalar_table, false},
#if defined(__x86_64__)
    {"avx2", avx2_table, false},
    {"avx512", avx512_table, false},
    {"avx512bf16", avx512bf16_table, true},
#endif
  };
  return kTiers;
}

std::vector<TierState> inspect_tiers() {
  return inspect_tiers(platform::detect_cpu_features());
}

std::vector<TierState> inspect_tiers(const platform::CpuFeatures& features) {
  std::vector<TierState> states;
  for (const Tier& tier : compiled_tiers()) {
    TierState state{tier, false, missing_feature(tier.name, features), {}};
    if (state.reason.empty() && tier.uses_dot_product) {
      state.probe = probe_dot_product(*tier.table());
      if (!state.probe.canonical()) {
        state.reason = fmt::format(
            "this CPU's BF16 dot product rounds otherwise than the canonical arithmetic ({} of {} cases; {})",
            state.probe.mismatches, state.probe.cases, state.probe.first_mismatch);
      }
    }
    state.usable = state.reason.empty();
    states.push_back(std::move(state));
  }
  return states;
}

Expected<const KernelTable*> select(std::string_view isa) {
  return select(isa, inspect_tiers());
}

Expected<const KernelTable*> select(std::string_view isa, const std::vector<TierState>& tiers) {
  if (isa != "auto") {
    const auto found =
        std::find_if(tiers.begin(), tiers.end(), [&](const TierState& state) { return state.tier.name == isa; });
    if (found == tiers.end()) {
      return make_error(
          ErrorCode::kInvalidArgument,
          fmt::format("--isa: '{}' is not a kernel tier; this host can run: {}", isa, usable_names(tiers)), "--isa");
    }
    if (!found->usable) {
      return make_error(
          ErrorCode::kUnsupported,
          fmt::format("--isa: '{}' can't run here: {}; this host can run: {}", isa, found->reason, usable_names(tiers)),
          "--isa");
    }
    return found->tier.table();
  }
  const KernelTable* best = nullptr;
  double best_rate = 0.0;
  // From the widest down; the scalar tier only where there is no other, because measuring it would take longer than all the rest.
  for (auto state = tiers.rbegin(); state != tiers.rend(); ++state) {
    if (!state->usable) continue;
    const KernelTable* table = state->tier.table();
    if (state->tier.name == "scalar") {
      if (best == nullptr) best = table;
      continue;
    }
    const double rate = measure_gemm_rate(*table);
    if (rate > best_rate) {
      best_rate = rate;
      best = table;
    }
  }
  if (best == nullptr) return make_error(ErrorCode::kInternal, "no kernel tier can run on this host", "--isa");
  return best;
}

}  // namespace sterling::kernels
