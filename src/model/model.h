// A loaded model: the decoder's order of operations over a backend.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <boost/json.hpp>

#include "backend/backend.h"
#include "base/status.h"
#include "formats/checkpoint.h"
#include "model/activations.h"
#include "model/blocks.h"
#include "model/executor.h"
#include "model/weight_binder.h"
#include "spec/model_spec.h"

namespace sterling::model {

// Receives what a step computes, layer by layer (golden tests, audits). Values are copies [tokens, hidden].
class ForwardProbe {
 public:
  virtual ~ForwardProbe() = default;
  // index 0: embeddings; i: residual stream after layer i - 1; layers + 1: after the final norm.
  virtual void hidden(std::int32_t index, std::vector<float> values) = 0;
  // Output of a layer's attention or GDN block, and of its MLP, before the residual add.
  virtual void mixer(std::int32_t layer, std::vector<float> values) = 0;
  virtual void mlp(std::int32_t layer, std::vector<float> values) = 0;
  // What the router of a layer with experts decided for each token.
  virtual void router(std::int32_t layer, backend::RouterChoices choices) = 0;
  // A layer's attention or GDN has just run, in the backend's live buffers: q, k and v as they entered it, the output before its gate or
  // projection. A probe may run the same operation again as long as it leaves the buffers as it found them.
  virtual void attention(std::int32_t /*layer*/, const backend::AttentionArgs& /*args*/, backend::Matrix /*q*/,
                         backend::Matrix /*k*/, backend::Matrix /*v*/, backend::Matrix /*out*/) {}
  virtual void gdn(std::int32_t /*layer*/, const backend::GdnArgs& /*args*/, backend::Matrix /*qkv*/,
                   backend::Matrix /*a*/, backend::Matrix /*b*/) {}
};

// What reading a checkpoint says without touching its weights.
struct CheckResult {
  ModelSpec spec;
  std::vector<WeightBinder::Skipped> skipped;
  std::vector<WeightBinder::BoundWeight> bound;
};

// Configuration and tensor names, shapes and types against the family: everything load() would refuse but the weights' contents.
Expected<CheckResult> check(const formats::Checkpoint& checkpoint);

// The same with every fault listed instead of the first alone; for inspection. `spec` is empty when the configuration itself is refused.
struct Examination {
  std::optional<ModelSpec> spec;
  std::vector<WeightBinder::Problem> problems;  // none: load() can only fail on the weights' contents
  std::vector<WeightBinder::Skipped> skipped;
  std::vector<WeightBinder::BoundWeight> bound;
};
Examination examine(const formats::Checkpoint& checkpoint);

// Every tensor that a configuration's model binds, with shapes, as if all weights were plain. kUnsupported: no such family.
Expected<std::vector<WeightBinder::Wanted>> list_tensors(const boost::json::object& config,
                                                         std::string_view config_file);

// Bytes loaded so far, of all that will be.
using LoadProgress = std::function<void(std::int64_t done, std::int64_t total)>;

class Model final : public Executor {
 public:
  // Packs the weights into `backend`, which must outlive the model and serves this model alone.
  static Expected<std::unique_ptr<Model>> load(const formats::Checkpoint& checkpoint, backend::Backend& backend,
                                               const LoadProgress& progress);

  // Allocates pools and activations; once, before the first step.
  Status configure(const backend::PoolOptions& options);

  const ModelSpec& spec() const { return spec_; }
  const std::vector<WeightBinder::Skipped>& skipped() const { return skipped_; }
  const std::vector<WeightBinder::BoundWeight>& bound() const { return bound_; }
  const std::vector<WeightBinder::Placed>& placed() const { return placed_; }
  backend::Backend& backend() { return backend_; }

  const ExecutorLimits& limits() const override { return limits_; }
  Status forward(const BatchView& batch, std::span<float> logits) override;
  Status forward(const BatchView& batch, std::span<float> logits, ForwardProbe* probe);

  // Read-back of what the pools hold, per layer of the model; empty where the layer is of the other kind.
  std::vector<float> read_kv(std::int32_t layer, std::span<const std::int32_t> block_table, std::int64_t tokens,
                             bool value);
  // Before the scale, as stored.
  std::vector<std::byte> read_kv_raw(std::int32_t layer, std::span<const std::int32_t> block_table, std::int64_t tokens,
                                     bool value);
  std::vector<float> read_state(std::int32_t layer, std::int32_t slot);
  std::vector<float> read_conv_window(std::int32_t layer, std::int32_t slot);

 private:
  Model(backend::Backend& backend, ModelSpec spec) : backend_(backend), spec_(std::move(spec)) {}

  void run_layer(std::int32_t index, std::int64_t tokens, ForwardProbe* probe);
  void run_attention(std::int32_t layer, const AttentionBlock& block, std::int64_t tokens, ForwardProbe* probe);
  void run_gdn(std::int32_t layer, const GdnBlock& block, std::int64_t tokens, ForwardProbe* probe);
  void run_moe(const MoeBlock& block, std::int64_t tokens);
  void project(backend::Matrix in, backend::LinearId weight, std::int64_t tokens,
               const std::function<void(std::vector<float>)>& probe);
  backend::GdnArgs gdn_args(const GdnBlock& block) const;

  backend::Backend& backend_;
  ModelSpec spec_;
  DecoderWeights weights_;
  std::vector<WeightBinder::Skipped> skipped_;
  std::vector<WeightBinder::BoundWeight> bound_;
  std::vector<WeightBinder::Placed> placed_;
  ExecutorLimits limits_;
  Activations act_;
  backend::Matrix head_input_;  // [logit rows, hidden]
};

}  // namespace sterling::model
