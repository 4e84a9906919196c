// vLLM: memory x gpu_memory_utilization, less weights and the measured peak of a profiling run, is cut into blocks. In a hybrid model attention and recurrent
// state share them: the attention block grows until its page holds a state, and one block id spans a page in every layer of a group.
#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "plan/engines/rules.h"

namespace sterling::plan {
namespace {

constexpr std::int64_t kAlignModeBlocks = 2;  // per state group and request
constexpr std::int64_t kConvBytes = 2;        // the convolution window is in the model's type

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

std::optional<std::int64_t> available_for_blocks(const RuleInput& input, Capacity& capacity) {
  if (input.request.kv_memory) {
    if (input.slice.state) {
      capacity.assumptions.emplace_back(
          "--kv-memory is taken as \"Available KV cache memory\": its blocks hold recurrent state as well as K and V");
    }
    return input.request.kv_memory;
  }
  const double utilization = input.request.memory_fraction.value_or(kVllmDefaultUtilization);
  const auto usable = static_cast<std::int64_t>(static_cast<double>(*capacity.memory_bytes) * utilization);
  const std::int64_t peak = input.request.workspace_bytes.value_or(0);
  capacity.workspace_bytes = *capacity.memory_bytes - usable + peak;
  capacity.assumptions.push_back(
      fmt::format("gpu_memory_utilization {} ({})", utilization,
                  input.request.memory_fraction ? "given" : "the newest default; 0.9 before"));
  if (!input.request.workspace_bytes) {
    capacity.assumptions.emplace_back(
        "peak activations and CUDA graphs are measured by the engine at start and counted as 0 here: --workspace SIZE "
        "adds them");
  }
  if (!capacity.weights_bytes) {
    capacity.fits_reason = "the weights' bytes are not known";
    return std::nullopt;
  }
  const std::int64_t available = usable - *capacity.weights_bytes - peak;
  capacity.formulas.push_back(
      fmt::format("available = {} memory x {} - {} weights - {} peak activations and graphs = {} B",
                  grouped(*capacity.memory_bytes), utilization, grouped(*capacity.weights_bytes), grouped(peak),
                  grouped(available)));
  return available;
}

void describe(const VllmPages& pages, std::int64_t blocks, std::int64_t available, Capacity& capacity) {
  if (pages.state_page_bytes > 0) {
    capacity.formulas.push_back(
        fmt::format("block = 16 x ceil({} B state / (16 x {} B of K and V per token and layer)) = {} tokens; page {} B",
                    grouped(pages.state_page_bytes), grouped(pages.page_bytes / pages.block_tokens), pages.block_tokens,
                    grouped(pages.page_bytes)));
    capacity.assumptions.emplace_back(
        "mamba cache mode \"align\" (the default with prefix caching): two blocks per state group and request; no "
        "speculation");
  } else {
    capacity.formulas.push_back(fmt::format("page = {} tokens x {} B = {} B", pages.block_tokens,
                                            grouped(pages.page_bytes / pages.block_tokens), grouped(pages.page_bytes)));
  }
  capacity.formulas.push_back(fmt::format("num_gpu_blocks = {} B / ({} B x {} layers of a group) = {}",
                                          grouped(available), grouped(pages.page_bytes), pages.group_layers,
                                          grouped(blocks)));
  capacity.figures.push_back({"block_size", static_cast<double>(pages.block_tokens), true});
  capacity.figures.push_back({"page_bytes", static_cast<double>(pages.page_bytes), true});
  capacity.figures.push_back({"layer_groups", static_cast<double>(pages.groups()), true});
  capacity.figures.push_back({"num_gpu_blocks", static_cast<double>(blocks), true});
}

}  // namespace

std::int64_t VllmPages::blocks_per_request(std::int64_t tokens) const {
  return attention_groups * ceil_div(tokens, block_tokens) + state_groups * kAlignModeBlocks;
}

VllmPages vllm_pages(const CacheShape& slice, const KvStorage& storage) {
  VllmPages pages;
  const AttentionCache& layer = slice.attention->front();
  const std::int64_t token_bytes = kv_bytes_per_token_layer(layer, storage);
  pages.block_tokens = kVllmBlockTokens;
  pages.group_layers = layer.layers;
  pages.attention_groups = 1;
  if (slice.state) {
    pages.state_page_bytes = state_bytes_per_layer(*slice.state, kConvBytes);
    pages.block_tokens = kVllmBlockTokens * ceil_div(pages.state_page_bytes, kVllmBlockTokens * token_bytes);
    // Groups are as large as the rarer kind of layer, or as the commoner where the two are nearly as many.
    const auto [fewest, most] = std::minmax(layer.layers, slice.state->layers);
    pages.group_layers = most * 4 < fewest * 5 ? most : fewest;
    pages.attention_groups = ceil_div(layer.layers, pages.group_layers);
    pages.state_groups = ceil_div(slice.state->layers, pages.group_layers);
  }
  pages.page_bytes = pages.block_tokens * token_bytes;
  return pages;
}

void apply_vllm(const RuleInput& input, Capacity& capacity) {
  const std::vector<AttentionCache>& attention = *input.slice.attention;
  if (attention.size() != 1 || attention.front().window > 0 || (input.slice.state && attention.front().latent)) {
    capacity.assumptions.emplace_back(
        "how this engine divides memory among these kinds of layers is not known here: tokens and sequences are left "
        "open");
    capacity.fits_reason = "its rule for this model is not known";
    for (const std::int64_t context : input.request.contexts) capacity.concurrency.push_back({context, {}, "kv", {}});
    return;
  }
  const std::optional<std::int64_t> available = available_for_blocks(input, capacity);
  if (!available) {
    for (const std::int64_t context : input.request.contexts) capacity.concurrency.push_back({context, {}, "kv", {}});
    return;
  }
  const VllmPages pages = vllm_pages(input.slice, input.storage);
  const std::int64_t blocks = std::max<std::int64_t>(0, *available) / pages.block_bytes();
  capacity.kv_pool_bytes = std::max<std::int64_t>(0, *available);
  describe(pages, blocks, *available, capacity);
  for (const std::int64_t context : input.request.contexts) {
    const std::int64_t each = pages.blocks_per_request(context);
    Concurrency row{context, blocks / each, "kv", {}};
    if (pages.state_groups * kAlignModeBlocks * 2 > each) row.bound_by = "state";
    if (input.request.max_num_seqs && *input.request.max_num_seqs <= *row.sequences) {
      row.sequences = input.request.max_num_seqs;
      row.bound_by = "max_num_seqs";
    }
    capacity.concurrency.push_back(row);
    capacity.formulas.push_back(fmt::format(
        "concurrency({}) = {} blocks / ({} attention groups x {} + {} state groups x {}) = {:.2f}", grouped(context),
        grouped(blocks), pages.attention_groups, grouped(ceil_div(context, pages.block_tokens)), pages.state_groups,
        kAlignModeBlocks, static_cast<double>(blocks) / static_cast<double>(each)));
  }
  const std::int64_t longest = input.request.contexts.empty()
                                   ? input.request.shape.max_position_embeddings
                                   : *std::max_element(input.request.contexts.begin(), input.request.contexts.end());
  if (longest > 0) {
    const double concurrency = static_cast<double>(blocks) / static_cast<double>(pages.blocks_per_request(longest));
    const auto older = blocks / pages.groups() * pages.block_tokens;
    capacity.kv_tokens = static_cast<std::int64_t>(concurrency * static_cast<double>(longest));
    capacity.figures.push_back({"max_model_len", static_cast<double>(longest), true});
    capacity.figures.push_back({"max_concurrency", concurrency, false});
    capacity.figures.push_back({"gpu_kv_cache_size_older", static_cast<double>(older), true});
    capacity.figures.push_back({"gpu_kv_cache_size_newer", static_cast<double>(*capacity.kv_tokens), true});
    capacity.formulas.push_back(
        fmt::format("\"GPU KV cache size\", older = {} blocks / {} groups x {} = {}; newer = {:.4f} x {} = {} tokens: "
                    "the same memory",
                    grouped(blocks), pages.groups(), pages.block_tokens, grouped(older), concurrency, grouped(longest),
                    grouped(*capacity.kv_tokens)));
    capacity.assumptions.push_back(fmt::format("max_model_len {}: the longest context asked for", grouped(longest)));
    capacity.fits = blocks >= pages.blocks_per_request(longest);
    if (!*capacity.fits)
      capacity.fits_reason =
          fmt::format("one sequence of {} tokens needs {} blocks, there are {}: the engine would refuse to start",
                      grouped(longest), grouped(pages.blocks_per_request(longest)), grouped(blocks));
  }
}

}  // namespace sterling::plan
