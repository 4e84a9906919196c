// One engine's way from bytes to pools. `capacity` comes with the per-token and per-sequence figures filled in; the rule adds pools, tokens,
// concurrency and whether it fits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/capacity.h"

namespace sterling::plan {

struct RuleInput {
  const CapacityRequest& request;
  const CacheShape& slice;  // of one rank; its attention is known
  const KvStorage& storage;
};

void apply_sterling(const RuleInput& input, Capacity& capacity);
void apply_sglang(const RuleInput& input, Capacity& capacity);
void apply_vllm(const RuleInput& input, Capacity& capacity);

// ---- Sterling: what `serve` does, and with it `plan`. All sizes of one rank, or all of all ranks.
constexpr std::int64_t kDefaultMaxSequences = 32;
// Share of the memory left after weights, workspace and state that an unasked-for KV pool takes: the machine is not ours alone.
constexpr double kKvShare = 0.5;
constexpr std::int64_t kMaxAutoTokens = std::int64_t{1} << 22;

struct PoolWish {
  std::int64_t available = 0;  // for state and KV together
  std::optional<std::int64_t> kv_memory;
  std::int64_t block_bytes = 0;  // one block of all full-attention layers; 0: the model has none
  std::int64_t state_bytes = 0;  // one sequence; 0: the model has none
  std::int64_t sequences = kDefaultMaxSequences;
  std::int64_t max_model_len = 0;
};
struct PoolSizes {
  std::int64_t kv_blocks = 0;
  std::int64_t state_slots = 0;
};
PoolSizes size_pools(const PoolWish& wish);

// ---- SGLang
constexpr double kSglangDefaultMemFraction = 0.85;
constexpr double kMambaFullMemoryRatio = 0.9;
constexpr std::int64_t kSwaFullTokensPercent = 80;
constexpr std::int64_t kSlotsPerRunning = 3;             // radix cache on
constexpr std::int64_t kSlotsPerRunningExtraBuffer = 5;  // and an extra buffer with overlap scheduling

// State slots and tokens in `rest` bytes.
struct SglangSplit {
  std::int64_t slots = 0;
  std::int64_t tokens = 0;
};
SglangSplit sglang_split(std::int64_t rest, std::int64_t state_bytes, std::int64_t kv_bytes_per_token,
                         const std::optional<std::int64_t>& slots_given);
// Tokens of the full and of the sliding layers in a budget. Bytes per token, of all layers of the kind.
struct SglangWindows {
  std::int64_t full_tokens = 0;
  std::int64_t window_tokens = 0;
};
SglangWindows sglang_windows(std::int64_t budget, std::int64_t full_bytes, std::int64_t window_bytes);

// ---- vLLM
constexpr double kVllmDefaultUtilization = 0.92;
constexpr std::int64_t kVllmBlockTokens = 16;

// Pages shared by all layer groups of a model.
struct VllmPages {
  std::int64_t block_tokens = 0;
  std::int64_t page_bytes = 0;        // of one block of one layer
  std::int64_t state_page_bytes = 0;  // before it is padded to page_bytes; 0: no state
  std::int64_t group_layers = 0;      // layers that one block id spans
  std::int64_t attention_groups = 0;
  std::int64_t state_groups = 0;

  std::int64_t block_bytes() const { return page_bytes * group_layers; }
  std::int64_t groups() const { return attention_groups + state_groups; }
  // Blocks that a request of this length holds: its tokens', and two for each state group ("align" mode).
  std::int64_t blocks_per_request(std::int64_t tokens) const;
};
VllmPages vllm_pages(const CacheShape& slice, const KvStorage& storage);

// ---- shared by the rules
// a * b, or the largest number where that does not fit.
std::int64_t saturating_product(std::int64_t a, std::int64_t b);
// "24,422,400"
std::string grouped(std::int64_t n);
// "17.40 GiB"
std::string gib(std::int64_t bytes);

}  // namespace sterling::plan
