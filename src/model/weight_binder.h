// Binds a checkpoint's tensors to a backend's handles by name and shape, and keeps account: every tensor is used once or known to be
// skipped, every wanted one is there with the right shape. The first problem is kept; binding goes on harmlessly after it.
//
// The same binding code runs twice: as a check that reads headers alone (before a byte of weights is touched), then for real.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "backend/backend.h"
#include "base/status.h"
#include "formats/checkpoint.h"
#include "spec/model_spec.h"

namespace sterling::model {

class WeightBinder {
 public:
  // Check only: names, shapes and types against the headers; handles stay absent.
  explicit WeightBinder(const formats::Checkpoint& checkpoint) : checkpoint_(checkpoint) {}
  // For real. `progress` is told the bytes of every tensor that has been loaded.
  WeightBinder(const formats::Checkpoint& checkpoint, backend::Backend& backend, ShardSpec shard,
               std::function<void(std::int64_t)> progress);

  backend::LinearId linear(const std::string& name, std::int64_t rows, std::int64_t cols);
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

  bool has(const std::string& name) const { return checkpoint_.find(name) != nullptr; }

  struct Skipped {
    std::string what;
    std::int64_t tensors = 0;
    std::int64_t bytes = 0;
  };
  const std::vector<Skipped>& skipped() const { return skipped_; }

  // The first problem: a missing, misshapen or unusable tensor, or, if all is bound, one that nothing used.
  Status finish() const;

 private:
  const TensorView* require(const std::string& name, std::initializer_list<std::int64_t> shape);
  template <typename Id, typename Load>
  Id take(const TensorView* tensor, const Load& load);
  bool usable(const TensorView& tensor);
  void fail(Error error);
  void used(const TensorView& tensor);

  const formats::Checkpoint& checkpoint_;
  backend::Backend* backend_ = nullptr;
  ShardSpec shard_;
  std::function<void(std::int64_t)> progress_;
  std::unordered_set<std::string_view> used_;  // names, owned by the checkpoint
  std::vector<Skipped> skipped_;
  std::optional<Error> error_;
};

}  // namespace sterling::model
