#include "model/weight_binder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "quant/decode.h"

namespace sterling::model {

using backend::EmbeddingId;
using backend::LinearId;
using backend::RowSelection;
using backend::VectorId;
using backend::VectorTransform;

WeightBinder::WeightBinder(const formats::Checkpoint& checkpoint, backend::Backend& backend, ShardSpec shard,
                           std::function<void(std::int64_t)> progress)
    : checkpoint_(checkpoint), backend_(&backend), shard_(shard), progress_(std::move(progress)) {}

void WeightBinder::fail(Error error) {
  if (!error_) error_ = std::move(error);
}

const TensorView* WeightBinder::require(const std::string& name, std::initializer_list<std::int64_t> shape) {
  if (error_) return nullptr;
  const TensorView* tensor = checkpoint_.find(name);
  if (tensor == nullptr) {
    fail(make_error(ErrorCode::kCorrupt,
                    fmt::format("{}: tensor {} is missing; the architecture needs it with shape {}", checkpoint_.path(),
                                name, shape_text({shape.begin(), shape.size()})),
                    name));
    return nullptr;
  }
  if (!std::equal(shape.begin(), shape.end(), tensor->shape.begin(), tensor->shape.end())) {
    fail(make_error(ErrorCode::kCorrupt,
                    fmt::format("{}: tensor {} has shape {}, expected {} from the configuration", tensor->file, name,
                                shape_text(tensor->shape), shape_text({shape.begin(), shape.size()})),
                    name));
    return nullptr;
  }
  return usable(*tensor) ? tensor : nullptr;
}

bool WeightBinder::usable(const TensorView& tensor) {
  if (quant::can_decode(tensor.dtype)) return true;
  fail(make_error(ErrorCode::kUnsupported,
                  fmt::format("{}: tensor {} is stored as {}; accepted here: F32, F16, BF16 and GGUF block types",
                              tensor.file, tensor.name, dtype_name(tensor.dtype)),
                  tensor.name));
  return false;
}

void WeightBinder::used(const TensorView& tensor) {
  const bool first = used_.insert(tensor.name).second;
  if (backend_ == nullptr || !first) return;
  if (progress_) progress_(static_cast<std::int64_t>(tensor.data.size()));
}

// Loads a tensor that require() let through; a check-only run just counts it as used.
template <typename Id, typename Load>
Id WeightBinder::take(const TensorView* tensor, const Load& load) {
  if (tensor == nullptr) return {};
  Id id;
  if (backend_ != nullptr) {
    auto loaded = load(*tensor);
    if (!loaded) {
      fail(loaded.error());
      return {};
    }
    id = *loaded;
    checkpoint_.release_pages(*tensor);
  }
  used(*tensor);
  return id;
}

LinearId WeightBinder::linear(const std::string& name, std::int64_t rows, std::int64_t cols) {
  return linear_rows(name, rows, cols, RowSelection{});
}

LinearId WeightBinder::linear_rows(const std::string& name, std::int64_t rows, std::int64_t cols,
                                   const RowSelection& selection) {
  return take<LinearId>(require(name, {rows, cols}),
                        [&](const TensorView& tensor) { return backend_->load_linear(tensor, nullptr, selection); });
}

LinearId WeightBinder::linear_with_bias(const std::string& module, std::int64_t rows, std::int64_t cols, bool bias) {
  if (!bias) return linear(module + ".weight", rows, cols);
  const TensorView* weight = require(module + ".weight", {rows, cols});
  const TensorView* offset = require(module + ".bias", {rows});
  if (offset == nullptr) return {};
  used(*offset);
  return take<LinearId>(
      weight, [&](const TensorView& tensor) { return backend_->load_linear(tensor, offset, RowSelection{}); });
}

VectorId WeightBinder::vector(const std::string& name, std::int64_t size, VectorTransform transform) {
  return take<VectorId>(require(name, {size}),
                        [&](const TensorView& tensor) { return backend_->load_vector(tensor, transform); });
}

VectorId WeightBinder::conv(const std::string& name, std::int64_t channels, std::int64_t kernel) {
  return take<VectorId>(require(name, {channels, 1, kernel}),
                        [&](const TensorView& tensor) { return backend_->load_conv(tensor); });
}

EmbeddingId WeightBinder::embedding(const std::string& name, std::int64_t rows, std::int64_t cols) {
  return take<EmbeddingId>(require(name, {rows, cols}),
                           [&](const TensorView& tensor) { return backend_->load_embedding(tensor); });
}

EmbeddingId WeightBinder::embedding_of(LinearId linear) {
  return backend_ != nullptr && linear.present() ? backend_->embedding_of(linear) : EmbeddingId{};
}

void WeightBinder::skip_prefix(std::string_view prefix, std::string_view what) {
  Skipped skipped{std::string(what)};
  for (const TensorView& tensor : checkpoint_.tensors()) {
    if (!tensor.name.starts_with(prefix) || !used_.insert(tensor.name).second) continue;
    ++skipped.tensors;
    skipped.bytes += static_cast<std::int64_t>(tensor.data.size());
  }
  if (skipped.tensors > 0) skipped_.push_back(std::move(skipped));
}

void WeightBinder::skip_suffix(std::string_view suffix, std::string_view what) {
  Skipped skipped{std::string(what)};
  for (const TensorView& tensor : checkpoint_.tensors()) {
    if (!tensor.name.ends_with(suffix) || !used_.insert(tensor.name).second) continue;
    ++skipped.tensors;
    skipped.bytes += static_cast<std::int64_t>(tensor.data.size());
  }
  if (skipped.tensors > 0) skipped_.push_back(std::move(skipped));
}

void WeightBinder::skip_kv_scales() {
  for (const TensorView& tensor : checkpoint_.tensors()) {
    if (!tensor.name.ends_with(".k_scale") && !tensor.name.ends_with(".v_scale")) continue;
    if (!usable(tensor)) return;
    const auto values = quant::decode(tensor);
    if (!values) return fail(values.error());
    for (const float value : *values) {
      if (std::isfinite(value) && value > 0.0F) continue;
      return fail(make_error(ErrorCode::kCorrupt,
                             fmt::format("{}: tensor {} holds the KV scale {}; scales are finite and greater than 0",
                                         tensor.file, tensor.name, value),
                             tensor.name));
    }
  }
  skip_suffix(".k_scale", "KV cache scales of K (K is stored in BF16, unscaled)");
  skip_suffix(".v_scale", "KV cache scales of V (V is stored in BF16, unscaled)");
}

Status WeightBinder::finish() const {
  if (error_) return *error_;
  const TensorView* first = nullptr;
  std::int64_t unused = 0;
  for (const TensorView& tensor : checkpoint_.tensors()) {
    if (used_.contains(tensor.name)) continue;
    if (first == nullptr) first = &tensor;
    ++unused;
  }
  if (first == nullptr) return {};
  return make_error(ErrorCode::kCorrupt,
                    fmt::format("{}: tensor {} {} is used by no part of the architecture{}", first->file, first->name,
                                shape_text(first->shape),
                                unused > 1 ? fmt::format(" ({} more such tensors)", unused - 1) : std::string()),
                    first->name);
}

}  // namespace sterling::model
