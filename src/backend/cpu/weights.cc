// Loading: stored tensors become panels, tables and FP32 vectors, checked for NaN and infinity on the way.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "backend/cpu/cpu_backend_impl.h"
#include "base/check.h"
#include "base/float_types.h"
#include "kernels/panels.h"
#include "kernels/rope_table.h"
#include "quant/decode.h"

namespace sterling::backend {
namespace {

bool bf16_is_finite(std::uint16_t bits) {
  return (bits & 0x7f80u) != 0x7f80u;
}

Error not_finite(const TensorView& tensor, std::int64_t element) {
  const std::int64_t columns = quant::row_shape(tensor).columns;
  return make_error(ErrorCode::kCorrupt,
                    fmt::format("{}: tensor {} holds NaN or infinity at [{}, {}]; weights must be finite", tensor.file,
                                tensor.name, element / columns, element % columns),
                    tensor.name);
}

// Index of the first value that is not finite, or -1.
std::int64_t first_not_finite(std::span<const float> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) return static_cast<std::int64_t>(i);
  }
  return -1;
}

}  // namespace

std::int64_t source_row(const RowSelection& selection, std::int64_t row) {
  if (selection.period == 0) return row;
  const std::int64_t taken = selection.end - selection.begin;
  return row / taken * selection.period + selection.begin + row % taken;
}

CpuBackend::CpuBackend(const CpuBackendOptions& options)
    : options_(options), kernels_(*options.kernels), pool_(*options.pool) {}

std::unique_ptr<Backend> make_cpu_backend(const CpuBackendOptions& options) {
  STERLING_CHECK(options.kernels != nullptr && options.pool != nullptr);
  STERLING_CHECK(!options.activations || options.compute == Compute::kFp32);
  return std::make_unique<CpuBackend>(options);
}

std::string CpuBackend::description() const {
  return fmt::format("{}, {} thread{}", kernels_.name, pool_.threads(), pool_.threads() == 1 ? "" : "s");
}

// Fills the panels of `linear` from the selected rows; each task packs one panel.
Status CpuBackend::store_panels(const quant::StoredWeight& stored, const RowSelection& rows, PackedLinear& linear) {
  const TensorView& weight = stored.codes;
  if (Status status = quant::check_group_scales(stored, 0, stored.rows()); !status) return status;
  auto decoder = quant::RowDecoder::make(stored);
  if (!decoder) return decoder.error();
  const bool raw = linear.type == PanelType::kBf16;
  const std::int64_t k = linear.k;
  std::atomic<std::int64_t> bad{-1};
  std::atomic<bool> undecodable{false};
  std::vector<std::vector<float>> decoded(pool_.threads());
  std::vector<std::vector<std::uint16_t>> copied(pool_.threads());
  pool_.parallel(static_cast<std::size_t>(linear.panel_count()), [&](std::size_t panel, std::size_t thread) {
    const std::int64_t begin = static_cast<std::int64_t>(panel) * kernels::kLanes;
    const std::int64_t count = std::min<std::int64_t>(kernels::kLanes, linear.n - begin);
    std::byte* target = linear.panels.data() + static_cast<std::int64_t>(panel) * linear.panel_bytes;
    if (raw) {
      copied[thread].resize(static_cast<std::size_t>(kernels::kLanes * k));
      for (std::int64_t row = 0; row < count; ++row) {
        const std::int64_t from = source_row(rows, begin + row);
        std::uint16_t* to = copied[thread].data() + row * k;
        std::memcpy(to, weight.data.data() + from * k * 2, static_cast<std::size_t>(k) * 2);
        for (std::int64_t i = 0; i < k; ++i) {
          if (!bf16_is_finite(to[i])) bad = from * k + i;
        }
      }
      kernels::pack_panel_bf16(copied[thread].data(), static_cast<std::size_t>(k), static_cast<int>(count),
                               static_cast<int>(k), target);
    } else {
      decoded[thread].resize(static_cast<std::size_t>(kernels::kLanes * k));
      for (std::int64_t row = 0; row < count; ++row) {
        const std::int64_t from = source_row(rows, begin + row);
        float* to = decoded[thread].data() + row * k;
        if (!decoder->decode(from, from + 1, to)) undecodable = true;
        const std::int64_t at = first_not_finite({to, static_cast<std::size_t>(k)});
        if (at >= 0) bad = from * k + at;
      }
      kernels::pack_panel_f32(decoded[thread].data(), static_cast<std::size_t>(k), static_cast<int>(count),
                              static_cast<int>(k), target);
    }
  });
  if (undecodable) {
    return make_error(ErrorCode::kInternal, fmt::format("tensor {} was bound without being checked", weight.name),
                      weight.name);
  }
  if (bad >= 0) return not_finite(weight, bad);
  return {};
}

Expected<LinearId> CpuBackend::reserve_linears(std::span<const quant::StoredWeight> weights, const RowSelection& rows,
                                               ProductInput input) {
  const auto first = static_cast<std::int32_t>(linears_.size());
  std::int64_t bytes = 0;
  for (const quant::StoredWeight& weight : weights) {
    linears_.push_back(describe(options_.compute, weight, rows, input));
    if (options_.activations && input == ProductInput::kActivation && options_.activations->applies(weight)) {
      if (Status status = prepare_emulation(weight, linears_.back()); !status) return status.error();
    }
    bytes += linears_.back().panels_bytes();
  }
  auto memory = platform::AlignedBuffer::allocate(static_cast<std::size_t>(bytes), "weights");
  if (!memory) return memory.error();
  footprint_.bytes += static_cast<std::int64_t>(memory->allocated_bytes());
  std::byte* next = memory->data();
  for (std::size_t i = static_cast<std::size_t>(first); i < linears_.size(); ++i) {
    PackedLinear& linear = linears_[i];
    linear.panels = {next, static_cast<std::size_t>(linear.panels_bytes())};
    next += linear.panels.size();
    footprint_.parameters += linear.n * linear.k;
  }
  weight_memory_.push_back(std::move(*memory));
  return LinearId{first};
}

Status CpuBackend::fill_linear(LinearId id, const quant::StoredWeight& weight, const RowSelection& rows) {
  PackedLinear& linear = linears_[static_cast<std::size_t>(id.index)];
  return linear.type == PanelType::kCoded ? store_codes(weight, rows, linear) : store_panels(weight, rows, linear);
}

Expected<LinearId> CpuBackend::load_linear(const quant::StoredWeight& weight, const TensorView* bias,
                                           const RowSelection& rows, ProductInput input) {
  const auto id = reserve_linears({&weight, 1}, rows, input);
  if (!id) return id;
  if (Status status = fill_linear(*id, weight, rows); !status) return status.error();
  if (bias != nullptr) {
    auto values = quant::decode(*bias);
    if (!values) return values.error();
    if (const std::int64_t at = first_not_finite(*values); at >= 0) return not_finite(*bias, at);
    PackedLinear& linear = linears_.back();
    linear.bias = std::move(*values);
    footprint_.bytes += static_cast<std::int64_t>(linear.bias.size() * sizeof(float));
    footprint_.parameters += linear.n;
  }
  return id;
}

Expected<VectorId> CpuBackend::load_vector(const TensorView& vector, VectorTransform transform) {
  auto values = quant::decode(vector);
  if (!values) return values.error();
  if (const std::int64_t at = first_not_finite(*values); at >= 0) return not_finite(vector, at);
  if (transform == VectorTransform::kOnePlus) {
    for (float& value : *values) value = 1.0F + value;
  } else if (transform == VectorTransform::kExp) {
    kernels_.exp(values->data(), values->data(), values->size());
  }
  footprint_.bytes += static_cast<std::int64_t>(values->size() * sizeof(float));
  footprint_.parameters += static_cast<std::int64_t>(values->size());
  vectors_.push_back(std::move(*values));
  return VectorId{static_cast<std::int32_t>(vectors_.size()) - 1};
}

Expected<VectorId> CpuBackend::load_conv(const TensorView& weight) {
  auto values = quant::decode(weight);
  if (!values) return values.error();
  if (const std::int64_t at = first_not_finite(*values); at >= 0) return not_finite(weight, at);
  const std::int64_t channels = weight.shape[0];
  const std::int64_t kernel = weight.shape[2];
  std::vector<float> transposed(values->size());  // [kernel][channels]
  for (std::int64_t c = 0; c < channels; ++c) {
    for (std::int64_t j = 0; j < kernel; ++j) {
      transposed[static_cast<std::size_t>(j * channels + c)] = (*values)[static_cast<std::size_t>(c * kernel + j)];
    }
  }
  footprint_.bytes += static_cast<std::int64_t>(transposed.size() * sizeof(float));
  footprint_.parameters += channels * kernel;
  vectors_.push_back(std::move(transposed));
  return VectorId{static_cast<std::int32_t>(vectors_.size()) - 1};
}

Expected<EmbeddingId> CpuBackend::load_embedding(const TensorView& table) {
  Embedding embedding = describe(table);
  auto rows = platform::AlignedBuffer::allocate(static_cast<std::size_t>(embedding.n * embedding.row_bytes()),
                                                "token embeddings");
  if (!rows) return rows.error();
  embedding.rows = std::move(*rows);
  if (embedding.dtype == DType::kBF16) {
    std::memcpy(embedding.rows.data(), table.data.data(), table.data.size());
    const auto values = embedding.rows.as<std::uint16_t>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!bf16_is_finite(values[i])) return not_finite(table, static_cast<std::int64_t>(i));
    }
  } else {
    if (Status status = quant::decode_rows(table, 0, embedding.n, embedding.rows.as<float>().data()); !status) {
      return status.error();
    }
    if (const std::int64_t at = first_not_finite(embedding.rows.as<float>()); at >= 0) return not_finite(table, at);
  }
  footprint_.bytes += static_cast<std::int64_t>(embedding.rows.allocated_bytes());
  footprint_.parameters += embedding.n * embedding.k;
  embeddings_.push_back(std::move(embedding));
  return EmbeddingId{static_cast<std::int32_t>(embeddings_.size()) - 1};
}

EmbeddingId CpuBackend::embedding_of(LinearId linear) {
  Embedding embedding;
  embedding.tied_linear = linear.index;
  embedding.n = linears_[static_cast<std::size_t>(linear.index)].n;
  embedding.k = linears_[static_cast<std::size_t>(linear.index)].k;
  embeddings_.push_back(std::move(embedding));
  return EmbeddingId{static_cast<std::int32_t>(embeddings_.size()) - 1};
}

Expected<RopeId> CpuBackend::add_rope(const RopeSpec& spec) {
  kernels::RopeParams params;
  params.theta = spec.theta;
  params.rotary_dim = spec.rotary_dim;
  params.scaling = spec.type == RopeType::kLinear   ? kernels::RopeScaling::kLinear
                   : spec.type == RopeType::kLlama3 ? kernels::RopeScaling::kLlama3
                                                    : kernels::RopeScaling::kNone;
  params.factor = spec.factor;
  params.low_freq_factor = spec.low_freq_factor;
  params.high_freq_factor = spec.high_freq_factor;
  params.original_max_position = spec.original_max_position;
  params.frequency_divisors = spec.freq_divisors;
  ropes_.push_back(Rope{kernels::rope_inv_freq(params), {}, {}});
  return RopeId{static_cast<std::int32_t>(ropes_.size()) - 1};
}

Status CpuBackend::configure(const ModelSpec& spec, const PoolOptions& options) {
  pools_ = options;
  if (spec.count(LayerKind::kFullAttention) > 0) {
    if (Status status = configure_kv(spec); !status) return status;
  }
  InputWidths widths;
  for (const PackedLinear& linear : linears_) widths.add(linear.input, linear.k);
  const Workspace sizes = cpu_workspace(spec, options, widths, kernels_, pool_.threads());
  if (spec.gdn) {
    auto states = StatePool::allocate(spec, options.state_slots);
    if (!states) return states.error();
    states_ = std::move(*states);
    auto conv = platform::AlignedBuffer::allocate(sizes.conv, "convolution output");
    if (!conv) return conv.error();
    conv_out_ = std::move(*conv);
    auto gates = platform::AlignedBuffer::allocate(sizes.gates, "GDN gates");
    if (!gates) return gates.error();
    gates_ = std::move(*gates);
  }
  for (std::size_t form = 0; form < kInputForms; ++form) {
    auto buffer = platform::AlignedBuffer::allocate(sizes.packed[form], "packed activations");
    if (!buffer) return buffer.error();
    packed_[form] = std::move(*buffer);
  }
  const auto tokens = static_cast<std::size_t>(options.max_batch_tokens);
  for (Rope& rope : ropes_) {
    rope.cosines.resize(tokens * rope.inverse_frequencies.size());
    rope.sines.resize(tokens * rope.inverse_frequencies.size());
  }
  if (spec.moe) {
    if (Status status = configure_moe(*spec.moe, sizes.experts); !status) return status;
  }
  if (spec.count(LayerKind::kFullAttention) == 0) return {};
  return configure_attention(sizes.attention);
}

std::int64_t CpuBackend::state_pool_bytes() const {
  return states_.bytes();
}

std::int64_t CpuBackend::workspace_bytes() const {
  std::size_t bytes = 0;
  for (const platform::AlignedBuffer* buffer : {&conv_out_, &gates_, &packed_[0], &packed_[1], &packed_[2],
                                                &attention_memory_, &split_memory_, &expert_hidden_, &moe_memory_}) {
    bytes += buffer->allocated_bytes();
  }
  for (const platform::AlignedBuffer& buffer : activations_) bytes += buffer.allocated_bytes();
  const auto list = [&bytes](const auto& vector) { bytes += vector.size() * sizeof(vector[0]); };
  for (const Rope& rope : ropes_) {
    list(rope.cosines);
    list(rope.sines);
  }
  list(chosen_), list(chosen_weight_), list(row_token_), list(row_weight_);
  list(shared_scale_), list(router_margin_), list(router_magnitude_), list(expert_begin_);
  return static_cast<std::int64_t>(bytes);
}

Expected<Matrix> CpuBackend::allocate(std::int64_t rows, std::int64_t cols) {
  const std::int64_t ld = activation_stride(cols);
  auto buffer = platform::AlignedBuffer::allocate(static_cast<std::size_t>(rows * ld) * sizeof(float), "activations");
  if (!buffer) return buffer.error();
  activations_.push_back(std::move(*buffer));
  return Matrix{activations_.back().as<float>().data(), rows, cols, ld};
}

}  // namespace sterling::backend
