// The model under `sterling golden`: one sequence, driven step by step.
#pragma once

#include <memory>

#include "cli/runtime.h"
#include "lab/golden.h"

namespace sterling::cli {

class ModelSubject final : public lab::GoldenSubject {
 public:
  // `chunk`: tokens per prefill step (0: the whole prompt at once). `kv`: absent as the compute type has it.
  static Expected<std::unique_ptr<ModelSubject>> create(Runtime runtime, std::int32_t max_tokens, std::int32_t chunk,
                                                        std::optional<plan::KvFormat> kv = std::nullopt,
                                                        plan::KvScales scales = {});

  const ModelSpec& spec() const override { return runtime_.model->spec(); }
  Expected<lab::GoldenRun> run(std::span<const std::int32_t> tokens, bool want_internals) override;
  Expected<std::vector<std::int32_t>> greedy(std::span<const std::int32_t> tokens, std::int32_t steps) override;

 private:
  explicit ModelSubject(Runtime runtime) : runtime_(std::move(runtime)) {}
  Status step(std::span<const std::int32_t> tokens, std::int32_t start, std::span<const std::int32_t> rows,
              std::span<float> logits, model::ForwardProbe* probe);

  Runtime runtime_;
  std::vector<std::int32_t> block_table_;
  std::int32_t chunk_ = 0;
};

}  // namespace sterling::cli
