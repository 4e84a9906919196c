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

namespace {

// "model.norm.weight" → "model.norm".
std::string module_of(const std::string& name) {
  constexpr std::string_view kSuffix = ".weight";
  return name.ends_with(kSuffix) ? name.substr(0, name.size() - kSuffix.size()) : name;
}

}  // namespace

WeightBinder::WeightBinder(const formats::Checkpoint& checkpoint, backend::Backend& backend, ShardSpec shard,
                           std::function<void(std::int64_t)> progress)
    : checkpoint_(&checkpoint), backend_(&backend), shard_(shard), progress_(std::move(progress)) {}

void WeightBinder::set_block(std::int64_t rows, std::int64_t cols) {
  block_rows_ = rows;
  block_cols_ = cols;
}

void WeightBinder::fail(std::string code, Error error) {
  problems_.push_back({std::move(code), std::move(error)});
}

const TensorView* WeightBinder::find(const std::string& name) const {
  return checkpoint_ == nullptr ? nullptr : checkpoint_->find(name);
}

bool WeightBinder::shape_is(const TensorView& tensor, std::initializer_list<std::int64_t> shape) {
  if (std::equal(shape.begin(), shape.end(), tensor.shape.begin(), tensor.shape.end())) return true;
  fail("wrong_shape",
       make_error(ErrorCode::kCorrupt,
                  fmt::format("{}: tensor {} has shape {}, expected {} from the configuration", tensor.file,
                              tensor.name, shape_text(tensor.shape), shape_text({shape.begin(), shape.size()})),
                  tensor.name));
  return false;
}

bool WeightBinder::usable(const TensorView& tensor) {
  if (quant::can_decode(tensor.dtype)) return true;
  fail("wrong_type",
       make_error(ErrorCode::kUnsupported,
                  fmt::format("{}: tensor {} is stored as {}; accepted here: F32, F16, BF16 and GGUF block types",
                              tensor.file, tensor.name, dtype_name(tensor.dtype)),
                  tensor.name));
  return false;
}

const TensorView* WeightBinder::tensor(const std::string& name, std::initializer_list<std::int64_t> shape,
                                       Wanted::Kind kind) {
  if (list_ != nullptr) {
    list_->push_back({name, {shape.begin(), shape.end()}, kind});
    return nullptr;
  }
  return require(name, shape);
}

const TensorView* WeightBinder::require(const std::string& name, std::initializer_list<std::int64_t> shape) {
  if (stopped()) return nullptr;
  const TensorView* tensor = find(name);
  if (tensor == nullptr) {
    fail("missing_tensor", make_error(ErrorCode::kCorrupt,
                                      fmt::format("{}: tensor {} is missing; the architecture needs it with shape {}",
                                                  checkpoint_->path(), name, shape_text({shape.begin(), shape.size()})),
                                      name));
    return nullptr;
  }
  // Counted whatever comes of it: a tensor with a fault is not one that nothing wants.
  used(*tensor);
  const bool right_type = usable(*tensor);
  return shape_is(*tensor, shape) && right_type ? tensor : nullptr;
}

bool WeightBinder::mark(const TensorView& tensor) {
  if (used_.empty()) used_.resize(checkpoint_->tensors().size());
  auto place = used_[static_cast<std::size_t>(&tensor - checkpoint_->tensors().data())];
  if (place) return false;
  place = true;
  return true;
}

bool WeightBinder::is_used(const TensorView& tensor) const {
  return !used_.empty() && used_[static_cast<std::size_t>(&tensor - checkpoint_->tensors().data())];
}

void WeightBinder::used(const TensorView& tensor) {
  const bool first = mark(tensor);
  if (backend_ == nullptr || !first) return;
  if (progress_) progress_(static_cast<std::int64_t>(tensor.data.size()));
}

// Finds the scales that belong to `codes` and says what they make together. Type and shape of each part are judged by quant::check.
std::optional<quant::StoredWeight> WeightBinder::collect(const std::string& module, const TensorView& codes) {
  quant::StoredWeight weight = quant::plain_weight(codes);
  const auto part = [&](const char* suffix) {
    const TensorView* tensor = find(module + suffix);
    if (tensor != nullptr) used(*tensor);
    return tensor;
  };
  const TensorView* scale = part(".weight_scale");
  const TensorView* inverse = part(".weight_scale_inv");
  const TensorView* second = part(".weight_scale_2");
  const TensorView* global = part(".weight_global_scale");
  const TensorView* input = part(".input_scale");
  const TensorView* input_global = part(".input_global_scale");
  weight.divide_by_input = input == nullptr && input_global != nullptr;
  if (weight.divide_by_input) input = input_global;
  if (input != nullptr) weight.input_scale = *input;
  const auto missing = [&](std::string_view what) -> std::optional<quant::StoredWeight> {
    fail("missing_scale",
         make_error(ErrorCode::kCorrupt,
                    fmt::format("{}: tensor {} is {} but {} is not there; a quantised weight needs its scales",
                                codes.file, codes.name, dtype_name(codes.dtype), what),
                    codes.name));
    return std::nullopt;
  };
  if (quant::can_decode(codes.dtype)) {
    if (scale == nullptr && inverse == nullptr && second == nullptr && global == nullptr) return weight;
    fail("bad_scale",
         make_error(
             ErrorCode::kCorrupt,
             fmt::format("{}: tensor {} is {} and yet has weight scales beside it; a weight of this type has none",
                         codes.file, codes.name, dtype_name(codes.dtype)),
             codes.name));
    return std::nullopt;
  }
  const auto e8m0 = [](const TensorView& t) { return t.dtype == DType::kU8 || t.dtype == DType::kF8E8M0; };
  if (codes.dtype == DType::kF8E4M3) {
    const TensorView* by = inverse != nullptr ? inverse : scale;
    if (by == nullptr) return missing(module + ".weight_scale (or .weight_scale_inv)");
    weight.scale = *by;
    weight.block_rows = block_rows_;
    weight.block_cols = block_cols_;
    const std::int64_t rows = weight.rows();
    weight.format = e8m0(*by)             ? quant::WeightFormat::kMxfp8
                    : by->elements() == 1 ? quant::WeightFormat::kFp8Tensor
                    : by->shape.size() == 1 || (by->shape.size() == 2 && by->shape[0] == rows && by->shape[1] == 1)
                        ? quant::WeightFormat::kFp8Channel
                        : quant::WeightFormat::kFp8Block;
    return weight;
  }
  if (codes.dtype == DType::kU8) {
    if (scale == nullptr) return missing(module + ".weight_scale");
    weight.scale = *scale;
    if (e8m0(*scale)) {
      weight.format = quant::WeightFormat::kMxfp4;
      return weight;
    }
    weight.format = quant::WeightFormat::kNvfp4;
    weight.divide_by_global = global != nullptr && second == nullptr;
    const TensorView* whole = second != nullptr ? second : global;
    if (whole == nullptr) return missing(module + ".weight_scale_2 (or .weight_global_scale)");
    weight.global_scale = *whole;
    return weight;
  }
  fail("wrong_type",
       make_error(
           ErrorCode::kUnsupported,
           fmt::format("{}: tensor {} is stored as {}; accepted: F32, F16, BF16, GGUF block types, and F8_E4M3 or "
                       "packed U8 (FP4) with their scales",
                       codes.file, codes.name, dtype_name(codes.dtype)),
           codes.name));
  return std::nullopt;
}

std::optional<quant::StoredWeight> WeightBinder::stored(const std::string& module, std::int64_t rows,
                                                        std::int64_t cols) {
  const std::string plain = module + ".weight";
  if (list_ != nullptr) {
    list_->push_back({plain, {rows, cols}, Wanted::Kind::kMatrix});
    return std::nullopt;
  }
  if (stopped()) return std::nullopt;
  const TensorView* codes = find(plain);
  if (codes == nullptr) codes = find(module + ".weight_packed");
  if (codes == nullptr) {
    require(plain, {rows, cols});  // says that it is missing
    return std::nullopt;
  }
  used(*codes);
  auto weight = collect(module, *codes);
  if (!weight) return std::nullopt;
  const bool packed = weight->format == quant::WeightFormat::kNvfp4 || weight->format == quant::WeightFormat::kMxfp4;
  if (packed && cols % 2 != 0) {
    fail("wrong_shape", make_error(ErrorCode::kUnsupported,
                                   fmt::format("{}: tensor {} packs two elements in a byte, and {} columns are odd",
                                               codes->file, codes->name, cols),
                                   codes->name));
    return std::nullopt;
  }
  if (!shape_is(*codes, {rows, packed ? cols / 2 : cols})) return std::nullopt;
  if (Status status = quant::check(*weight); !status) {
    const std::string code = status.error().where == codes->name ? "wrong_type" : "bad_scale";
    fail(code, status.error());
    return std::nullopt;
  }
  bound_.push_back({module, weight->format});
  return weight;
}

void WeightBinder::plan_linears(std::span<const quant::StoredWeight> weights, const RowSelection& rows,
                                backend::ProductInput input) {
  if (sizes_ != nullptr) plan_.packed_bytes += sizes_->linears(weights, rows, input);
}

void WeightBinder::plan_source(std::int64_t bytes) {
  plan_.largest_source_bytes = std::max(plan_.largest_source_bytes, bytes);
}

void WeightBinder::loaded(const quant::StoredWeight& weight) {
  checkpoint_->release_pages(weight.codes);
  if (weight.scale) checkpoint_->release_pages(*weight.scale);
}

// Loads a tensor that require() let through; a check-only run leaves the handle absent.
template <typename Id, typename Load>
Id WeightBinder::take(const TensorView* tensor, std::int64_t planned_bytes, const Load& load) {
  if (tensor == nullptr) return {};
  plan_.packed_bytes += planned_bytes;
  plan_source(static_cast<std::int64_t>(tensor->data.size()));
  if (backend_ == nullptr) return {};
  auto loaded = load(*tensor);
  if (!loaded) {
    fail("load_failed", loaded.error());
    return {};
  }
  checkpoint_->release_pages(*tensor);
  return *loaded;
}

LinearId WeightBinder::load(const std::optional<quant::StoredWeight>& weight, const TensorView* bias,
                            const RowSelection& selection, backend::ProductInput input) {
  if (!weight) return {};
  plan_linears({&*weight, 1}, selection, input);
  if (bias != nullptr) plan_.packed_bytes += vector_bytes(bias->elements());
  plan_source(weight->stored_bytes());
  if (backend_ == nullptr) return {};
  auto id = backend_->load_linear(*weight, bias, selection, input);
  if (!id) {
    fail("load_failed", id.error());
    return {};
  }
  loaded(*weight);
  place(*id, *weight, selection);
  return *id;
}

LinearId WeightBinder::linear(const std::string& name, std::int64_t rows, std::int64_t cols,
                              backend::ProductInput input) {
  return load(stored(module_of(name), rows, cols), nullptr, RowSelection{}, input);
}

LinearId WeightBinder::linear_rows(const std::string& name, std::int64_t rows, std::int64_t cols,
                                   const RowSelection& selection) {
  return load(stored(module_of(name), rows, cols), nullptr, selection, backend::ProductInput::kActivation);
}

LinearId WeightBinder::linear_with_bias(const std::string& module, std::int64_t rows, std::int64_t cols, bool bias) {
  const auto weight = stored(module, rows, cols);
  const TensorView* offset = bias ? tensor(module + ".bias", {rows}, Wanted::Kind::kVector) : nullptr;
  if (bias && offset == nullptr) return {};
  return load(weight, offset, RowSelection{}, backend::ProductInput::kActivation);
}

VectorId WeightBinder::vector(const std::string& name, std::int64_t size, VectorTransform transform) {
  return take<VectorId>(tensor(name, {size}, Wanted::Kind::kVector), vector_bytes(size),
                        [&](const TensorView& view) { return backend_->load_vector(view, transform); });
}

VectorId WeightBinder::conv(const std::string& name, std::int64_t channels, std::int64_t kernel) {
  return take<VectorId>(tensor(name, {channels, 1, kernel}, Wanted::Kind::kConv), vector_bytes(channels * kernel),
                        [&](const TensorView& view) { return backend_->load_conv(view); });
}

EmbeddingId WeightBinder::embedding(const std::string& name, std::int64_t rows, std::int64_t cols) {
  const TensorView* table = tensor(name, {rows, cols}, Wanted::Kind::kEmbedding);
  return take<EmbeddingId>(table, table != nullptr && sizes_ != nullptr ? sizes_->embedding(*table) : 0,
                           [&](const TensorView& view) { return backend_->load_embedding(view); });
}

EmbeddingId WeightBinder::embedding_of(LinearId linear) {
  return backend_ != nullptr && linear.present() ? backend_->embedding_of(linear) : EmbeddingId{};
}

void WeightBinder::skip_matching(const std::function<bool(std::string_view)>& matches, std::string_view what) {
  if (checkpoint_ == nullptr) return;
  Skipped skipped{std::string(what)};
  for (const TensorView& tensor : checkpoint_->tensors()) {
    if (!matches(tensor.name) || !mark(tensor)) continue;
    ++skipped.tensors;
    skipped.bytes += static_cast<std::int64_t>(tensor.data.size());
  }
  if (skipped.tensors > 0) skipped_.push_back(std::move(skipped));
}

void WeightBinder::skip_prefix(std::string_view prefix, std::string_view what) {
  skip_matching([&](std::string_view name) { return name.starts_with(prefix); }, what);
}

void WeightBinder::skip_suffix(std::string_view suffix, std::string_view what) {
  skip_matching([&](std::string_view name) { return name.ends_with(suffix); }, what);
}

void WeightBinder::skip_kv_scales() {
  if (checkpoint_ == nullptr) return;
  constexpr std::string_view kSuffixes[] = {".k_scale", ".v_scale", ".kv_scale", ".k_proj.output_scale",
                                            ".v_proj.output_scale"};
  const auto is_kv_scale = [&](std::string_view name) {
    return std::any_of(std::begin(kSuffixes), std::end(kSuffixes),
                       [&](std::string_view s) { return name.ends_with(s); });
  };
  for (const TensorView& tensor : checkpoint_->tensors()) {
    if (!is_kv_scale(tensor.name) || is_used(tensor) || !usable(tensor)) continue;
    const auto values = quant::decode(tensor);
    if (!values) {
      fail("bad_scale", values.error());
      continue;
    }
    for (const float value : *values) {
      if (std::isfinite(value) && value > 0.0F) continue;
      fail("bad_scale",
           make_error(ErrorCode::kCorrupt,
                      fmt::format("{}: tensor {} holds the KV scale {}; scales are finite and greater than 0",
                                  tensor.file, tensor.name, value),
                      tensor.name));
      break;
    }
  }
  skip_matching(is_kv_scale, "K/V scales (used only where the KV cache asks for them)");
}

Status WeightBinder::finish() {
  if (!std::exchange(finished_, true) && checkpoint_ != nullptr && !stopped()) {
    for (const TensorView& tensor : checkpoint_->tensors()) {
      if (is_used(tensor)) continue;
      fail("unused_tensor", make_error(ErrorCode::kCorrupt,
                                       fmt::format("{}: tensor {} {} is used by no part of the architecture",
                                                   tensor.file, tensor.name, shape_text(tensor.shape)),
                                       tensor.name));
    }
  }
  if (problems_.empty()) return {};
  Error first = problems_.front().error;
  if (problems_.size() > 1) {
    first.message += fmt::format(" (and {} more such fault{}: sterling inspect lists them)", problems_.size() - 1,
                                 problems_.size() == 2 ? "" : "s");
  }
  return first;
}

}  // namespace sterling::model
