// Runs prompts through a model and hands out the K and V that its attention layers produced, not rounded: the model's cache holds FP32 for it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/status.h"
#include "cli/runtime.h"

namespace sterling::cli {

class KvCapture {
 public:
  // `longest`: tokens of the longest prompt.
  static Expected<KvCapture> create(Runtime runtime, std::int64_t longest);

  const Runtime& runtime() const { return runtime_; }
  const ModelSpec& spec() const { return runtime_.model->spec(); }

  // `take` is called for K and V of every full-attention layer in order (index among them), [kv_heads][tokens][head_dim].
  using Take = std::function<Status(std::int64_t index, bool value, std::span<const float> values)>;
  Status run(std::span<const std::int32_t> tokens, const Take& take);

 private:
  explicit KvCapture(Runtime runtime) : runtime_(std::move(runtime)) {}

  Runtime runtime_;
  std::vector<std::int32_t> blocks_;
  std::int32_t chunk_ = 0;
};

}  // namespace sterling::cli
