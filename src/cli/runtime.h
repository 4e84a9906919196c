// Composition: checkpoint → threads, kernels, backend → model. Used by every command that runs a model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "backend/backend.h"
#include "backend/cpu/workspace.h"
#include "base/log.h"
#include "base/status.h"
#include "formats/checkpoint.h"
#include "kernels/contract.h"
#include "model/model.h"
#include "model/weight_plan.h"
#include "platform/thread_pool.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace sterling::cli {

struct RuntimeOptions {
  std::string model;  // directory or .gguf file
  backend::Compute compute = backend::Compute::kBf16;
  std::optional<std::string> isa;      // empty: fastest measured
  std::optional<std::size_t> threads;  // empty: one per physical core within limits
  bool pin_threads = false;
};

// Members are destroyed in reverse: the model before its backend before its threads.
struct Runtime {
  std::unique_ptr<formats::Checkpoint> checkpoint;
  std::unique_ptr<platform::ThreadPool> pool;
  const kernels::KernelTable* kernels = nullptr;
  std::unique_ptr<backend::Backend> backend;
  std::unique_ptr<model::Model> model;
  model::WeightPlan weight_plan;           // told before loading
  backend::InputWidths input_widths;       // likewise: what the workspace depends on
  std::int64_t peak_resident_loading = 0;  // measured after it; 0: the kernel doesn't say
};

// Checkpoint, threads, kernels and backend, without weights: enough to resolve precision and to refuse early.
Expected<Runtime> open_runtime(const RuntimeOptions& options);
// Its weights; the caller configures pools. A progress bar shows where stderr is a terminal.
Status load_weights(Runtime& runtime);
// Both.
Expected<Runtime> load_runtime(const RuntimeOptions& options);

// Sizes of the pools from what the user asked and what the machine has. Messages name the flags.
struct CapacityOptions {
  std::optional<std::size_t> max_model_len;
  std::optional<std::size_t> kv_cache_memory;
  std::size_t max_num_seqs = 32;
  std::size_t max_num_batched_tokens = 512;
  std::optional<plan::KvFormat> kv = std::nullopt;  // absent: as the backend does by itself
  plan::KvScales kv_scales = {};
};
Expected<backend::PoolOptions> plan_pools(const Runtime& runtime, const CapacityOptions& options);

// The tokenizer of a checkpoint, whatever its format. kNotFound: it has none.
Expected<std::shared_ptr<const text::Tokenizer>> load_tokenizer(const formats::Checkpoint& checkpoint);

// The chat template: `file` if given, else the checkpoint's; null where there is none.
Expected<std::shared_ptr<const text::ChatTemplate>> load_chat_template(const formats::Checkpoint& checkpoint,
                                                                       const text::Tokenizer& tokenizer,
                                                                       const std::optional<std::string>& file);

}  // namespace sterling::cli
