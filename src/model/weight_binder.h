// Binds a checkpoint's tensors to a backend's handles by name and shape, and keeps account: every tensor is used once or known to be
// skipped, every wanted one is there with the right shape. Every problem is kept; binding goes on harmlessly after one.
//
// The same binding code runs in three ways: as a check that reads headers (and scales that stand alone) before a byte of weights is touched, for
// real, and as a listing of what a family would bind, which needs no checkpoint.
//
// A quantised weight is made of several tensors. Which format it has is decided by the tensors that are there, never by the configuration:
//   module.weight          floating point or GGUF blocks                              plain
//   module.weight          F8_E4M3 with weight_scale_inv, or weight_scale of           FP8: one value per tensor, per row, per block; E8M0
//                          one value, [rows], [row blocks, column blocks], or E8M0     per 32 elements is MXFP8
//   module.weight          U8 with weight_scale F8_E4M3 and weight_scale_2             NVFP4 (ModelOpt: the global scale multiplies)
//   module.weight_packed   U8 with weight_scale F8_E4M3 and weight_global_scale        NVFP4 (compressed-tensors: the global scale divides)
//   module.weight(_packed) U8 with weight_scale U8 (E8M0)                              MXFP4
// input_scale and input_global_scale belong to quantised activations, which only `sterling audit` emulates: handed on unread.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/weight_sizes.h"
#include "base/status.h"
#include "formats/checkpoint.h"
#include "model/weight_plan.h"
#include "quant/stored_weight.h"
#include "spec/model_spec.h"

namespace sterling::model {

class WeightBinder {
 public:
  // Check only: names, shapes and types against the headers; handles stay absent.
  explicit WeightBinder(const formats::Checkpoint& checkpoint) : checkpoint_(&checkpoint) {}
  // For real. `progress` is told the bytes of every tensor that has been loaded.
  WeightBinder(const formats::Checkpoint& checkpoint, backend::Backend& backend, ShardSpec shard,
               std::function<void(std::int64_t)> progress);

  // A check that also adds up, in plan(), what a real run will take.
  WeightBinder(const formats::Checkpoint& checkpoint, const backend::WeightSizes& sizes)
      : checkpoint_(&checkpoint), sizes_(&sizes) {}

  // What a family binds, in order: for listing.
  struct Wanted {
    enum class Kind { kMatrix, kVector, kConv, kEmbedding };
    std::string name;
    std::vector<std::int64_t> shape;
    Kind kind = Kind::kMatrix;
  };
  // Listing only: nothing is looked up, has() is always false, so that families with several layouts list the one of single experts.
  explicit WeightBinder(std::vector<Wanted>& list) : list_(&list) {}

  // Elements of a block of scales where the layout does not say (config.json's weight_block_size). 128 x 128 unless set.
  void set_block(std::int64_t rows, std::int64_t cols);

  // The weight of `module` ("model.layers.0.mlp.up_proj") with its scales, checked and counted as used. Empty after a problem and in a
  // listing. The caller loads it (or parts of it) and then calls loaded().
  std::optional<quant::StoredWeight> stored(const std::string& module, std::int64_t rows, std::int64_t cols);
  // A tensor that is its own weight (fused experts), with any shape. Else as stored().
  const TensorView* tensor(const std::string& name, std::initializer_list<std::int64_t> shape,
                           Wanted::Kind kind = Wanted::Kind::kMatrix);
  // The backend of a real run, else nullptr.
  backend::Backend* backend() { return backend_; }
  // Counts what reserving and filling these weights will take; for plans, else nothing.
  void plan_linears(std::span<const quant::StoredWeight> weights, const backend::RowSelection& rows,
                    backend::ProductInput input);
  // Counts bytes of the checkpoint's files that are in use at the same time; for plans.
  void plan_source(std::int64_t bytes);
  const WeightPlan& plan() const { return plan_; }
  // Lets go of the pages of what has been packed.
  void loaded(const quant::StoredWeight& weight);
  void fail(std::string code, Error error);
  // No problem so far.
  bool intact() const { return problems_.empty(); }

  // `name` ends in ".weight".
  backend::LinearId linear(const std::string& name, std::int64_t rows, std::int64_t cols,
                           backend::ProductInput input = backend::ProductInput::kActivation);
  // name.weight and, if `bias`, name.bias.
  backend::LinearId linear_with_bias(const std::string& module, std::int64_t rows, std::int64_t cols, bool bias);
  // Some rows of a stored [rows, cols] matrix; the tensor may be bound several times with different selections.
  backend::LinearId linear_rows(const std::string& name, std::int64_t rows, std::int64_t cols,
                                const backend::RowSelection& selection);
  backend::VectorId vector(const std::string& name, std::int64_t size, backend::VectorTransform transform);
  backend::VectorId conv(const std::string& name, std::int64_t channels, std::int64_t kernel);
  backend::EmbeddingId embedding(const std::string& name, std::int64_t rows, std::int64_t cols);
  backend::EmbeddingId embedding_of(backend::LinearId linear);

  // Tensors that the architecture knows and does not use: vision tower, MTP head, buffers. `what` names them in reports.
  void skip_prefix(std::string_view prefix, std::string_view what);
  void skip_suffix(std::string_view suffix, std::string_view what);

  // Scales for a quantised KV cache (k_scale, v_scale): checked to be finite and positive, not used while K and V are stored in BF16.
  void skip_kv_scales();

  bool has(const std::string& name) const { return checkpoint_ != nullptr && checkpoint_->find(name) != nullptr; }

  // module.weight or module.weight_packed is there.
  bool has_weight(const std::string& module) const { return has(module + ".weight") || has(module + ".weight_packed"); }

  struct Skipped {
    std::string what;
    std::int64_t tensors = 0;
    std::int64_t bytes = 0;
  };
  const std::vector<Skipped>& skipped() const { return skipped_; }

  // One fault of the checkpoint. Codes are stable: missing_tensor, wrong_shape, wrong_type, unused_tensor, missing_scale, bad_scale,
  // not_finite, load_failed.
  struct Problem {
    std::string code;
    Error error;  // `where` is the tensor
  };
  // All so far, in order of binding. Call finish() first: it adds the tensors that nothing used.
  const std::vector<Problem>& problems() const { return problems_; }

  // Weights by the format they are stored in, as bound.
  struct BoundWeight {
    std::string module;
    quant::WeightFormat format = quant::WeightFormat::kPlain;
  };
  const std::vector<BoundWeight>& bound() const { return bound_; }

  // Where weights went in a real run: every matrix, of a layer's experts the first and the last. Views live as long as the checkpoint.
  struct Placed {
    backend::LinearId id;
    quant::StoredWeight weight;
    backend::RowSelection rows;
  };
  void place(backend::LinearId id, quant::StoredWeight weight, const backend::RowSelection& rows) {
    placed_.push_back({id, std::move(weight), rows});
  }
  const std::vector<Placed>& placed() const { return placed_; }

  // The first problem: a missing, misshapen or unusable tensor, or, if all is bound, one that nothing used.
  Status finish();

 private:
  // Null after recording why.
  const TensorView* require(const std::string& name, std::initializer_list<std::int64_t> shape);
  const TensorView* find(const std::string& name) const;
  std::optional<quant::StoredWeight> collect(const std::string& module, const TensorView& codes);
  bool shape_is(const TensorView& tensor, std::initializer_list<std::int64_t> shape);
  bool usable(const TensorView& tensor);
  void skip_matching(const std::function<bool(std::string_view)>& matches, std::string_view what);
  bool stopped() const { return backend_ != nullptr && !problems_.empty(); }
  template <typename Id, typename Load>
  Id take(const TensorView* tensor, std::int64_t planned_bytes, const Load& load);
  // Planned bytes of a tensor of `elements` FP32 values.
  std::int64_t vector_bytes(std::int64_t elements) const { return sizes_ == nullptr ? 0 : sizes_->vector(elements); }
  backend::LinearId load(const std::optional<quant::StoredWeight>& weight, const TensorView* bias,
                         const backend::RowSelection& selection, backend::ProductInput input);
  void used(const TensorView& tensor);
  // Marks it, and says whether it was unmarked. `tensor` is an element of the checkpoint's list.
  bool mark(const TensorView& tensor);
  bool is_used(const TensorView& tensor) const;

  const formats::Checkpoint* checkpoint_ = nullptr;
  backend::Backend* backend_ = nullptr;
  const backend::WeightSizes* sizes_ = nullptr;
  WeightPlan plan_;
  std::vector<Wanted>* list_ = nullptr;
  ShardSpec shard_;
  std::function<void(std::int64_t)> progress_;
  std::int64_t block_rows_ = 128;
  std::int64_t block_cols_ = 128;
  std::vector<bool> used_;  // by place in the checkpoint's list
  std::vector<Skipped> skipped_;
  std::vector<BoundWeight> bound_;
  std::vector<Placed> placed_;
  std::vector<Problem> problems_;
  bool finished_ = false;
};

}  // namespace sterling::model
