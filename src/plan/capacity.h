// How much fits: tokens, sequences and the bytes behind them, by the rules of one engine (engines/*.cc), from primitives that all share. Pure arithmetic; the
// server's own pools are sized by the same functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "plan/cache_shape.h"
#include "plan/kv_format.h"
#include "spec/model_spec.h"

namespace sterling::plan {

enum class Engine { kSterling, kSglang, kVllm };
std::string_view engine_name(Engine engine);  // "sterling", "sglang", "vllm"

// Sizes of memory are of one rank. Empty: not known, or not asked.
struct CapacityRequest {
  Engine engine = Engine::kSterling;
  std::int32_t tp = 1;
  CacheShape shape;                 // the whole model
  const ModelSpec* spec = nullptr;  // families that Sterling runs: its pools pad to whole vectors
  std::optional<std::int64_t> weights_bytes;
  std::optional<std::int64_t>
      workspace_bytes;  // Sterling: of its backend; vLLM: peak activations and graphs, if measured
  std::optional<std::int64_t> memory_bytes;
  std::optional<std::int64_t> kv_memory;
  std::vector<std::int64_t> contexts;  // lengths to count sequences of
  bool contexts_asked = false;         // each has to fit once, else fits is false
  std::optional<std::int64_t> max_num_seqs;
  std::optional<double>
      memory_fraction;      // SGLang mem_fraction_static, vLLM gpu_memory_utilization; empty: kDefault… below
  bool radix_cache = true;  // SGLang
};

struct Concurrency {
  std::int64_t context = 0;
  std::optional<std::int64_t> sequences;
  std::string bound_by;  // "kv", "state", "max_num_seqs"
  // Where only the KV pool is given: if the sequences' state had to lie in it too.
  std::optional<std::int64_t> sequences_with_state;
};

// A figure that the engine itself prints or counts in.
struct EngineFigure {
  std::string name;
  double value = 0;
  bool whole = true;
};

struct Capacity {
  std::string kv_cache_dtype;
  std::int64_t kv_heads = 0;
  std::optional<std::int64_t> weights_bytes, kv_bytes_per_token, unique_kv_bytes_per_token, state_bytes_per_sequence,
      workspace_bytes, memory_bytes, kv_pool_bytes, kv_tokens;
  std::vector<Concurrency> concurrency;
  std::optional<bool> fits;
  std::string fits_reason;  // what does not, or what can't be told
  std::vector<EngineFigure> figures;
  std::vector<std::string> assumptions;
  std::vector<std::string> formulas;  // each with its numbers in
};

// Types of the KV cache that the engine has and that the arithmetic here knows, the default first.
std::vector<KvStorage> kv_storages(Engine engine);

// kInvalidArgument: --tp that divides nothing, a memory fraction outside (0, 1). What can't be known is left empty, with a line in `assumptions`.
Expected<Capacity> plan_capacity(const CapacityRequest& request, const KvStorage& storage,
                                 const std::optional<KvFormat>& format);

}  // namespace sterling::plan
