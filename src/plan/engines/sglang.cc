// SGLang: memory_fraction of the device holds weights, recurrent-state slots and KV tokens; the rest stays free for activations and CUDA graphs. State slots are
// cut off first, in a fixed ratio to the KV pool; each running sequence holds several of them when the radix cache keeps snapshots.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "plan/engines/rules.h"

namespace sterling::plan {
namespace {

// Weights and pools share memory * fraction; what is left for the pools.
std::optional<std::int64_t> rest_for_pools(const RuleInput& input, Capacity& capacity) {
  const double fraction = input.request.memory_fraction.value_or(kSglangDefaultMemFraction);
  const std::int64_t memory = *capacity.memory_bytes;
  const auto kept_free = static_cast<std::int64_t>(std::llround(static_cast<double>(memory) * (1.0 - fraction)));
  capacity.workspace_bytes = kept_free;
  capacity.assumptions.push_back(
      fmt::format("mem_fraction_static {}{}: the engine chooses its own by GPU and flags unless it is given; take it "
                  "from server_args (--memory-fraction)",
                  fraction, input.request.memory_fraction ? "" : " (assumed)"));
  capacity.assumptions.emplace_back(
      "free memory before loading is the device's total: the driver's context, other processes and NCCL buffers take "
      "some of it");
  if (!capacity.weights_bytes) {
    capacity.fits_reason = "the weights' bytes are not known";
    return std::nullopt;
  }
  const std::int64_t rest = memory - *capacity.weights_bytes - kept_free;
  capacity.formulas.push_back(fmt::format("rest = ({} free before - {} weights) - {} free before x (1 - {}) = {} B",
                                          grouped(memory), grouped(*capacity.weights_bytes), grouped(memory), fraction,
                                          grouped(rest)));
  return rest;
}

void count(const RuleInput& input, Capacity& capacity, const std::optional<std::int64_t>& running_cap) {
  for (const std::int64_t context : input.request.contexts) {
    Concurrency row{context, {}, "kv", {}};
    if (capacity.kv_tokens) {
      std::int64_t sequences = *capacity.kv_tokens / context;
      if (running_cap && *running_cap < sequences) {
        sequences = *running_cap;
        row.bound_by = "state";
      }
      if (input.request.max_num_seqs && *input.request.max_num_seqs <= sequences) {
        sequences = *input.request.max_num_seqs;
        row.bound_by = "max_num_seqs";
      }
      row.sequences = sequences;
      const std::int64_t state = capacity.state_bytes_per_sequence.value_or(0);
      if (!input.request.memory_bytes && state > 0) {
        const std::int64_t kv = saturating_product(context, *capacity.kv_bytes_per_token);
        row.sequences_with_state = kv > *capacity.kv_pool_bytes ? 0 : *capacity.kv_pool_bytes / (kv + state);
      }
      capacity.formulas.push_back(fmt::format(
          "sequences({}) = {} tokens / {}{} = {}", grouped(context), grouped(*capacity.kv_tokens), grouped(context),
          running_cap ? fmt::format(", at most {} running", grouped(*running_cap)) : "", grouped(sequences)));
    }
    capacity.concurrency.push_back(row);
  }
}

void tokens_in(const RuleInput& input, Capacity& capacity, std::int64_t budget) {
  capacity.kv_pool_bytes = budget;
  const std::int64_t full = *capacity.kv_bytes_per_token;
  std::int64_t sliding = 0;
  for (const AttentionCache& layer : *input.slice.attention) {
    if (layer.window > 0) sliding += layer.layers * kv_bytes_per_token_layer(layer, input.storage);
  }
  if (sliding > 0) {
    const SglangWindows windows = sglang_windows(budget, full, sliding);
    capacity.kv_tokens = windows.full_tokens;
    capacity.figures.push_back({"swa_layer_tokens", static_cast<double>(windows.window_tokens), true});
    capacity.formulas.push_back(
        fmt::format("full_tokens = {} B / ({} B + 0.{} x {} B of sliding layers) = {}; swa_tokens = {}",
                    grouped(budget), grouped(full), kSwaFullTokensPercent / 10, grouped(sliding),
                    grouped(windows.full_tokens), grouped(windows.window_tokens)));
    capacity.assumptions.emplace_back("swa_full_tokens_ratio 0.8 (its default)");
    return;
  }
  if (full == 0) return;
  capacity.kv_tokens = budget / full;
  capacity.formulas.push_back(fmt::format("max_total_num_tokens = {} B / {} B = {}", grouped(budget), grouped(full),
                                          grouped(*capacity.kv_tokens)));
}

}  // namespace

SglangSplit sglang_split(std::int64_t rest, std::int64_t state_bytes, std::int64_t kv_bytes_per_token,
                         const std::optional<std::int64_t>& slots_given) {
  SglangSplit split;
  if (rest <= 0) return split;
  if (state_bytes > 0) {
    const double share = static_cast<double>(rest) * kMambaFullMemoryRatio / (1.0 + kMambaFullMemoryRatio);
    split.slots = slots_given ? *slots_given : static_cast<std::int64_t>(share / static_cast<double>(state_bytes));
  }
  const std::int64_t left = rest - saturating_product(split.slots, state_bytes);
  if (kv_bytes_per_token > 0) split.tokens = std::max<std::int64_t>(0, left) / kv_bytes_per_token;
  return split;
}

SglangWindows sglang_windows(std::int64_t budget, std::int64_t full_bytes, std::int64_t window_bytes) {
  SglangWindows windows;
  const std::int64_t denominator = full_bytes * 100 + window_bytes * kSwaFullTokensPercent;  // both in hundredths
  if (denominator <= 0 || budget <= 0) return windows;
  windows.full_tokens =
      static_cast<std::int64_t>(static_cast<double>(budget) * 100.0 / static_cast<double>(denominator));
  windows.window_tokens =
      windows.full_tokens / 100 * kSwaFullTokensPercent + windows.full_tokens % 100 * kSwaFullTokensPercent / 100;
  return windows;
}

void apply_sglang(const RuleInput& input, Capacity& capacity) {
  const std::int64_t state = capacity.state_bytes_per_sequence.value_or(0);
  std::optional<std::int64_t> rest;
  if (capacity.memory_bytes) rest = rest_for_pools(input, capacity);
  std::optional<std::int64_t> slots;
  if (input.request.kv_memory) {
    tokens_in(input, capacity, *input.request.kv_memory);
    if (rest && state > 0) slots = std::max<std::int64_t>(0, *rest - *input.request.kv_memory) / state;
    if (!capacity.memory_bytes) {
      capacity.fits = true;
      if (state > 0)
        capacity.assumptions.emplace_back(
            "--kv-memory is the KV pool alone: sequences are counted without their recurrent state; "
            "sequences_with_state counts it inside the pool");
    } else if (rest) {
      capacity.fits = *rest - *input.request.kv_memory >= state;
      if (!*capacity.fits)
        capacity.fits_reason = fmt::format("weights, KV pool and one sequence's state need {} more",
                                           gib(*input.request.kv_memory + state - *rest));
    }
  } else if (rest) {
    std::optional<std::int64_t> given;
    if (!input.request.radix_cache) given = input.request.max_num_seqs;
    const SglangSplit split = sglang_split(*rest, state, *capacity.kv_bytes_per_token, given);
    if (state > 0) {
      slots = split.slots;
      capacity.formulas.push_back(fmt::format("max_mamba_cache_size = {} B x {} / (1 + {}) / {} B = {}", grouped(*rest),
                                              kMambaFullMemoryRatio, kMambaFullMemoryRatio, grouped(state),
                                              grouped(split.slots)));
      capacity.assumptions.push_back(
          fmt::format("mamba_full_memory_ratio {} (its default), no speculation", kMambaFullMemoryRatio));
    }
    tokens_in(input, capacity, std::max<std::int64_t>(0, *rest - split.slots * state));
    capacity.fits = *rest > 0 && capacity.kv_tokens.value_or(1) > 0 && (state == 0 || split.slots > 0);
    if (!*capacity.fits) capacity.fits_reason = fmt::format("{} are left for state and KV cache", gib(*rest));
  }
  std::optional<std::int64_t> cap;
  if (slots) {
    capacity.figures.push_back({"max_mamba_cache_size", static_cast<double>(*slots), true});
    capacity.figures.push_back({"state_pool_bytes", static_cast<double>(saturating_product(*slots + 1, state)), true});
    cap = input.request.radix_cache ? *slots / kSlotsPerRunning : *slots;
    capacity.figures.push_back({"running_cap", static_cast<double>(*cap), true});
    if (input.request.radix_cache) {
      capacity.figures.push_back(
          {"running_cap_with_extra_buffer", static_cast<double>(*slots / kSlotsPerRunningExtraBuffer), true});
      capacity.assumptions.push_back(fmt::format(
          "radix cache on: {} state slots per running sequence; {} with an extra buffer and overlap scheduling",
          kSlotsPerRunning, kSlotsPerRunningExtraBuffer));
    }
    capacity.formulas.push_back(fmt::format("running sequences <= {} slots / {} = {}", grouped(*slots),
                                            input.request.radix_cache ? kSlotsPerRunning : 1, grouped(*cap)));
  }
  count(input, capacity, cap);
}

}  // namespace sterling::plan
