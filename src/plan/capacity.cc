#include "plan/capacity.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "base/check.h"
#include "plan/engines/rules.h"
#include "plan/memory.h"

namespace sterling::plan {
namespace {

constexpr std::int64_t kFp32 = 4;
constexpr std::int64_t kBf16 = 2;

// Sterling pads V to whole vectors; where the model runs here the allocator's own arithmetic answers.
std::int64_t sterling_kv_bytes(const CapacityRequest& request, const CacheShape& shape, const ModelSpec* spec,
                               const KvStorage& storage, const std::optional<KvFormat>& format) {
  STERLING_CHECK(request.engine == Engine::kSterling);
  if (spec != nullptr && format) return plan::kv_bytes_per_token(*spec, *format);
  return kv_bytes_per_token(shape, storage);
}

void explain_kv(const CapacityRequest& request, const CacheShape& slice, const KvStorage& storage, Capacity& capacity) {
  for (const AttentionCache& layer : *slice.attention) {
    const std::string of =
        layer.window > 0 ? fmt::format("sliding layers ({} tokens each)", layer.window) : "full-attention layers";
    if (layer.latent) {
      capacity.formulas.push_back(
          fmt::format("K/V per token = {} latent dims in {} x {} layers, whole on every rank = {} B", layer.k_dim,
                      storage.name, layer.layers, grouped(kv_bytes_per_token_layer(layer, storage) * layer.layers)));
      continue;
    }
    std::int64_t whole = 0;
    for (const AttentionCache& candidate : *request.shape.attention) {
      if (candidate.window == layer.window && candidate.latent == layer.latent) whole = candidate.kv_heads;
    }
    const std::string heads = whole < request.tp ? fmt::format("1 KV head (of {}, each on {} ranks)", whole,
                                                               request.tp / std::max<std::int64_t>(1, whole))
                                                 : fmt::format("{} KV heads (of {})", layer.kv_heads, whole);
    const std::string scales =
        storage.k_scale_bytes + storage.v_scale_bytes == 0
            ? ""
            : fmt::format(" + {} B of scales per head", storage.k_scale_bytes + storage.v_scale_bytes);
    capacity.formulas.push_back(fmt::format("K/V per token and rank = {} x ({} + {} dims in {}{}) x {} {} = {} B",
                                            heads, layer.k_dim, layer.v_dim, storage.name, scales, layer.layers, of,
                                            grouped(kv_bytes_per_token_layer(layer, storage) * layer.layers)));
  }
}

void explain_state(const CacheShape& slice, std::int64_t conv_bytes, std::int64_t bytes, Capacity& capacity) {
  if (!slice.state) return;
  const RecurrentCache& state = *slice.state;
  capacity.formulas.push_back(
      fmt::format("state per sequence and rank = ({} value heads x {} x {} x 4 B + {} columns x {} channels x {} B) x "
                  "{} layers = {} B",
                  state.value_heads, state.key_dim, state.value_dim, state.conv_columns, state.conv_channels(),
                  conv_bytes, state.layers, grouped(bytes)));
  capacity.assumptions.push_back(conv_bytes == kFp32 ? "recurrent state and convolution window are FP32"
                                                     : "recurrent state is FP32, the convolution window BF16");
}

Status check_request(const CapacityRequest& request) {
  if (request.memory_fraction && !(*request.memory_fraction > 0 && *request.memory_fraction < 1)) {
    return make_error(ErrorCode::kInvalidArgument, "a memory fraction lies between 0 and 1", "--memory-fraction");
  }
  return {};
}

// Contexts that were asked for by name have to fit at least once.
void judge_contexts(const CapacityRequest& request, Capacity& capacity) {
  if (!request.contexts_asked || capacity.fits != true) return;
  for (const Concurrency& row : capacity.concurrency) {
    if (row.sequences != 0) continue;
    capacity.fits = false;
    capacity.fits_reason = fmt::format("not one sequence of {} tokens fits", grouped(row.context));
    return;
  }
}

}  // namespace

std::string_view engine_name(Engine engine) {
  switch (engine) {
    case Engine::kSterling: return "sterling";
    case Engine::kSglang: return "sglang";
    case Engine::kVllm: return "vllm";
  }
  STERLING_CHECK(false);
  return "";
}

std::vector<KvStorage> kv_storages(Engine engine) {
  std::vector<KvStorage> list;
  for (const KvType type : kKvTypes) {
    const bool own = type == KvType::kFp32 || type == KvType::kFp8E4m3Token;
    if (own && engine != Engine::kSterling) continue;
    list.push_back(kv_storage({type, type}));
  }
  if (engine == Engine::kSglang) list.push_back({"fp4_e2m1", 9, 9, 0, 0});  // eight bytes of codes and one scale
  return list;
}

Expected<Capacity> plan_capacity(const CapacityRequest& request, const KvStorage& storage,
                                 const std::optional<KvFormat>& format) {
  if (const Status status = check_request(request); !status.ok()) return status.error();
  const auto slice = rank_slice(request.shape, request.tp);
  if (!slice) return slice.error();
  std::optional<ModelSpec> spec;
  if (request.spec != nullptr) {
    auto sliced = rank_slice(*request.spec, request.tp);
    if (!sliced) return sliced.error();
    spec = std::move(*sliced);
  }
  Capacity capacity;
  capacity.kv_cache_dtype = storage.name;
  capacity.weights_bytes = request.weights_bytes;
  capacity.memory_bytes = request.memory_bytes;
  capacity.workspace_bytes = request.workspace_bytes;
  const std::int64_t conv_bytes = request.engine == Engine::kSterling ? kFp32 : kBf16;
  const bool own = request.engine == Engine::kSterling;
  if (slice->state_known) {
    capacity.state_bytes_per_sequence =
        own && spec ? plan::state_bytes_per_sequence(*spec) : state_bytes_per_sequence(*slice, conv_bytes);
    explain_state(*slice, conv_bytes, *capacity.state_bytes_per_sequence, capacity);
  } else {
    capacity.assumptions.emplace_back("the recurrent state of this family has no formula here: it is left open");
  }
  if (!slice->attention) {
    capacity.assumptions.emplace_back(
        "the configuration does not say what its attention layers keep per token: tokens and sequences are left open");
    capacity.fits_reason = "bytes per token are not known";
    for (const std::int64_t context : request.contexts) capacity.concurrency.push_back({context, {}, "kv", {}});
    return capacity;
  }
  if (!slice->attention->empty()) capacity.kv_heads = slice->attention->front().kv_heads;
  if (own) {
    capacity.kv_bytes_per_token = sterling_kv_bytes(request, *slice, spec ? &*spec : nullptr, storage, format);
    capacity.unique_kv_bytes_per_token = sterling_kv_bytes(request, request.shape, request.spec, storage, format);
  } else {
    capacity.kv_bytes_per_token = kv_bytes_per_token(*slice, storage);
    capacity.unique_kv_bytes_per_token = kv_bytes_per_token(request.shape, storage);
  }
  explain_kv(request, *slice, storage, capacity);
  capacity.formulas.push_back(
      fmt::format("K/V per token without replication = {} B", grouped(*capacity.unique_kv_bytes_per_token)));
  if (sliding_layers(*slice) > 0) {
    capacity.figures.push_back(
        {"window_bytes_per_sequence", static_cast<double>(window_bytes_per_sequence(*slice, storage)), true});
    capacity.assumptions.push_back(
        fmt::format("{} sliding-window layers keep a window and no more: {} B per sequence, in neither "
                    "kv_bytes_per_token nor the sequences counted",
                    sliding_layers(*slice), grouped(window_bytes_per_sequence(*slice, storage))));
  }
  // A pool of K and V alone can be counted without knowing the state; whoever shares memory with it can't.
  const bool needs_state = request.memory_bytes || request.engine == Engine::kVllm;
  if (!slice->state_known && needs_state) {
    capacity.fits_reason = "bytes of state per sequence are not known";
    for (const std::int64_t context : request.contexts) capacity.concurrency.push_back({context, {}, "kv", {}});
    return capacity;
  }
  if (request.memory_bytes || request.kv_memory) {
    const RuleInput input{request, *slice, storage};
    if (own) apply_sterling(input, capacity);
    if (request.engine == Engine::kSglang) apply_sglang(input, capacity);
    if (request.engine == Engine::kVllm) apply_vllm(input, capacity);
  }
  judge_contexts(request, capacity);
  return capacity;
}

std::int64_t saturating_product(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<std::int64_t>::max() : product;
}

std::string grouped(std::int64_t n) {
  std::string digits = std::to_string(n);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > (n < 0 ? 1 : 0); at -= 3) {
    digits.insert(static_cast<std::size_t>(at), ",");
  }
  return digits;
}

std::string gib(std::int64_t bytes) {
  return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (1 << 30));
}

}  // namespace sterling::plan
