// Sterling's own pools: state slots for every sequence that may run, KV blocks in a share of what is left.
#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "plan/engines/rules.h"
#include "plan/memory.h"

namespace sterling::plan {
namespace {

void count(const RuleInput& input, Capacity& capacity, std::int64_t blocks, const std::optional<std::int64_t>& slots,
           const std::optional<std::int64_t>& max_sequences) {
  const std::int64_t state = capacity.state_bytes_per_sequence.value_or(0);
  const std::int64_t block_bytes = *capacity.kv_bytes_per_token * kBlockTokens;
  for (const std::int64_t context : input.request.contexts) {
    const std::int64_t per_sequence = (context + kBlockTokens - 1) / kBlockTokens;
    Concurrency row{context, {}, "kv", {}};
    std::int64_t sequences =
        block_bytes == 0 ? std::numeric_limits<std::int64_t>::max() : blocks / std::max<std::int64_t>(1, per_sequence);
    if (slots && *slots < sequences) {
      sequences = *slots;
      row.bound_by = "state";
    }
    if (max_sequences && *max_sequences <= sequences) {
      row.bound_by = "max_num_seqs";
      sequences = *max_sequences;
    }
    if (sequences != std::numeric_limits<std::int64_t>::max()) row.sequences = sequences;
    if (!input.request.memory_bytes && capacity.kv_pool_bytes && state > 0) {
      const std::int64_t kv = saturating_product(per_sequence, block_bytes);
      row.sequences_with_state = kv > *capacity.kv_pool_bytes ? 0 : *capacity.kv_pool_bytes / (kv + state);
    }
    capacity.concurrency.push_back(row);
    capacity.formulas.push_back(
        fmt::format("sequences({}) = {} blocks / {} blocks each{}{} = {}", grouped(context), grouped(blocks),
                    grouped(per_sequence), slots ? fmt::format(", at most {} state slots", grouped(*slots)) : "",
                    max_sequences ? fmt::format(", at most {} running", grouped(*max_sequences)) : "",
                    row.sequences ? grouped(*row.sequences) : "unlimited"));
  }
}

void plan_with_pool(const RuleInput& input, Capacity& capacity, std::int64_t pool) {
  const std::int64_t per_token = *capacity.kv_bytes_per_token;
  capacity.kv_pool_bytes = pool;
  std::int64_t blocks = 0;
  if (per_token > 0) {
    capacity.kv_tokens = pool / per_token;
    blocks = *capacity.kv_tokens / kBlockTokens;
    capacity.formulas.push_back(
        fmt::format("kv_tokens = {} B / {} B per token = {}; the pool holds whole blocks of {}: {} blocks, {} tokens",
                    grouped(pool), grouped(per_token), grouped(*capacity.kv_tokens), kBlockTokens, grouped(blocks),
                    grouped(blocks * kBlockTokens)));
    capacity.figures.push_back({"kv_blocks", static_cast<double>(blocks), true});
    capacity.figures.push_back({"kv_tokens_in_whole_blocks", static_cast<double>(blocks * kBlockTokens), true});
  }
  std::optional<std::int64_t> slots;
  const std::int64_t state = capacity.state_bytes_per_sequence.value_or(0);
  if (capacity.memory_bytes) {
    if (!capacity.weights_bytes) {
      capacity.fits_reason = "the weights' bytes are not known, so what is left beside them isn't either";
    } else {
      const std::int64_t left =
          *capacity.memory_bytes - *capacity.weights_bytes - capacity.workspace_bytes.value_or(0) - pool;
      capacity.formulas.push_back(
          fmt::format("left for state = {} memory - {} weights - {} workspace - {} KV pool = {} B",
                      grouped(*capacity.memory_bytes), grouped(*capacity.weights_bytes),
                      grouped(capacity.workspace_bytes.value_or(0)), grouped(pool), grouped(left)));
      capacity.fits = left >= state;
      if (!*capacity.fits)
        capacity.fits_reason =
            fmt::format("weights, workspace, KV pool and one sequence's state need {} more", gib(state - left));
      if (state > 0) slots = std::max<std::int64_t>(0, left) / state;
    }
  } else {
    capacity.fits = true;
    if (state > 0)
      capacity.assumptions.push_back(
          "--kv-memory is the KV pool alone: sequences are counted without their recurrent state; sequences_with_state "
          "counts it inside the pool");
  }
  count(input, capacity, blocks, slots, input.request.max_num_seqs);
}

void plan_with_memory(const RuleInput& input, Capacity& capacity) {
  if (!capacity.weights_bytes) {
    capacity.fits_reason = "the weights' bytes are not known";
    for (const std::int64_t context : input.request.contexts) capacity.concurrency.push_back({context, {}, "kv", {}});
    return;
  }
  const std::int64_t available =
      *capacity.memory_bytes - *capacity.weights_bytes - capacity.workspace_bytes.value_or(0);
  PoolWish wish;
  wish.available = available;
  wish.block_bytes = *capacity.kv_bytes_per_token * kBlockTokens;
  wish.state_bytes = capacity.state_bytes_per_sequence.value_or(0);
  wish.sequences = input.request.max_num_seqs.value_or(kDefaultMaxSequences);
  wish.max_model_len = input.request.shape.max_position_embeddings;
  const PoolSizes pools = size_pools(wish);
  capacity.kv_pool_bytes = pools.kv_blocks * wish.block_bytes;
  capacity.kv_tokens = pools.kv_blocks * kBlockTokens;
  capacity.formulas.push_back(fmt::format("available = {} memory - {} weights - {} workspace = {} B",
                                          grouped(*capacity.memory_bytes), grouped(*capacity.weights_bytes),
                                          grouped(capacity.workspace_bytes.value_or(0)), grouped(available)));
  capacity.formulas.push_back(fmt::format("state pool = {} slots x {} B = {} B", pools.state_slots,
                                          grouped(wish.state_bytes), grouped(pools.state_slots * wish.state_bytes)));
  capacity.formulas.push_back(
      fmt::format("KV pool = min(({} available - state pool) x {}, {} sequences x {} tokens, {} tokens) in whole "
                  "blocks of {} B = {} B, {} tokens",
                  grouped(available), kKvShare, wish.sequences, grouped(wish.max_model_len), grouped(kMaxAutoTokens),
                  grouped(wish.block_bytes), grouped(*capacity.kv_pool_bytes), grouped(*capacity.kv_tokens)));
  capacity.figures.push_back({"kv_blocks", static_cast<double>(pools.kv_blocks), true});
  if (wish.state_bytes > 0) capacity.figures.push_back({"state_slots", static_cast<double>(pools.state_slots), true});
  capacity.assumptions.push_back(
      fmt::format("the KV pool takes {:.0f} % of what weights, workspace and state leave (serve's default), at most {} "
                  "sequences of the model's length; --kv-memory sets it",
                  kKvShare * 100, wish.sequences));
  if (!input.request.max_num_seqs) {
    capacity.assumptions.push_back(fmt::format(
        "at most {} sequences run at once (serve's default), each with its state slot; --max-num-seqs sets it",
        kDefaultMaxSequences));
  }
  const std::int64_t state_pool = pools.state_slots * wish.state_bytes;
  capacity.fits = available >= state_pool && (wish.block_bytes == 0 || pools.kv_blocks > 0);
  if (!*capacity.fits) {
    capacity.fits_reason =
        available < 0 ? fmt::format("weights and workspace alone need {} more", gib(-available))
                      : fmt::format("{} are left for {} of state and a KV pool", gib(available), gib(state_pool));
  }
  count(input, capacity, pools.kv_blocks, {}, wish.sequences);
}

}  // namespace

PoolSizes size_pools(const PoolWish& wish) {
  PoolSizes sizes;
  sizes.state_slots = wish.state_bytes > 0 ? wish.sequences : 0;
  const std::int64_t most_blocks = saturating_product(wish.max_model_len, wish.sequences) / kBlockTokens;
  if (wish.block_bytes == 0) {
    sizes.kv_blocks = most_blocks;  // nothing to store
  } else if (wish.kv_memory) {
    sizes.kv_blocks = *wish.kv_memory / wish.block_bytes;
  } else {
    const auto budget = static_cast<std::int64_t>(
        static_cast<double>(wish.available - saturating_product(wish.state_bytes, sizes.state_slots)) * kKvShare);
    sizes.kv_blocks =
        std::min({std::max<std::int64_t>(budget, 0) / wish.block_bytes, most_blocks, kMaxAutoTokens / kBlockTokens});
  }
  return sizes;
}

void apply_sterling(const RuleInput& input, Capacity& capacity) {
  if (input.request.kv_memory) {
    plan_with_pool(input, capacity, *input.request.kv_memory);
  } else {
    plan_with_memory(input, capacity);
  }
}

}  // namespace sterling::plan
