#include "backend/cpu/workspace.h"

#include <algorithm>

#include "backend/cpu/cpu_backend_impl.h"
#include "platform/aligned_buffer.h"

namespace sterling::backend {
namespace {

constexpr std::int64_t kTargetRows = 64;  // query rows of a prefill unit: one pass over K and V serves them all
constexpr std::int64_t kPartialBytes = std::int64_t{8} << 20;  // partial results of a unit, per thread
constexpr std::int64_t kSplitBytes = std::int64_t{16} << 20;   // partial results of all units in split mode

std::size_t aligned(std::size_t bytes) {
  constexpr std::size_t kTo = platform::AlignedBuffer::kAlignment;
  return (bytes + kTo - 1) / kTo * kTo;
}

// K or V are FP8, so that attention needs room for decoded tiles.
bool has_codes(const PoolOptions& pools) {
  const auto coded = [](plan::KvType type) { return type != plan::KvType::kBf16 && type != plan::KvType::kFp32; };
  return pools.kv && (coded(pools.kv->k) || coded(pools.kv->v));
}

std::size_t floats(std::int64_t count) {
  return static_cast<std::size_t>(count) * sizeof(float);
}

AttentionWorkspace attention_workspace(const AttentionSpec& spec, std::int64_t max_tokens, bool coded,
                                       const kernels::KernelTable& kernels) {
  AttentionWorkspace sizes;
  const std::int64_t group = spec.heads / spec.kv_heads;
  const std::int64_t spans = (max_tokens + kernels::kSpanTokens - 1) / kernels::kSpanTokens;
  const std::int64_t row_floats = spec.head_dim + 2;
  const std::int64_t fitting = kPartialBytes / (spans * row_floats * 4) / group * group;
  const std::int64_t wanted = std::max<std::int64_t>(1, kTargetRows / group) * group;
  sizes.rows = std::clamp(fitting, group, wanted);
  const auto m = static_cast<int>(sizes.rows);
  sizes.head = aligned(floats(sizes.rows * spec.head_dim));
  sizes.packed =
      aligned(std::max(kernels.packed_x_bytes_bf16(m, spec.head_dim), kernels.packed_x_bytes_f32(m, spec.head_dim)));
  sizes.kernel = aligned(kernels.attention_scratch_bytes(m, spec.head_dim, coded));
  sizes.stat = aligned(floats(spans * sizes.rows));
  sizes.partial = aligned(floats(spans * sizes.rows * spec.head_dim));
  sizes.split_rows = kSplitBytes / (row_floats * 4);
  sizes.split = floats(sizes.split_rows * row_floats);
  return sizes;
}

ExpertWorkspace expert_workspace(const ModelSpec& spec, std::int64_t tokens, const kernels::KernelTable& kernels) {
  ExpertWorkspace sizes;
  const MoeSpec& moe = *spec.moe;
  const std::int64_t pairs = tokens * moe.experts_per_token;
  const std::int64_t widest = std::max(spec.hidden_size, moe.intermediate);
  sizes.hidden = floats(pairs * moe.intermediate);
  sizes.rows = aligned(floats(kExpertRows * widest));
  for (std::size_t form = 0; form < kInputForms; ++form) {
    sizes.packed[form] = aligned(packed_input_bytes(kernels, static_cast<InputForm>(form), kExpertRows, widest));
  }
  sizes.lists = floats(4 * pairs + 3 * tokens + moe.experts + 1);
  return sizes;
}

class NotingWeightSizes final : public WeightSizes {
 public:
  NotingWeightSizes(Compute compute, InputWidths* widths)
      : compute_(compute), sizes_(cpu_weight_sizes(compute)), widths_(widths) {}

  std::int64_t linears(std::span<const quant::StoredWeight> weights, const RowSelection& rows,
                       ProductInput input) const override {
    for (const quant::StoredWeight& weight : weights) {
      const PackedLinear linear = describe(compute_, weight, rows, input);
      widths_->add(linear.input, linear.k);
    }
    return sizes_->linears(weights, rows, input);
  }
  std::int64_t vector(std::int64_t elements) const override { return sizes_->vector(elements); }
  std::int64_t embedding(const TensorView& table) const override { return sizes_->embedding(table); }

 private:
  Compute compute_;
  std::unique_ptr<WeightSizes> sizes_;
  InputWidths* widths_;
};

}  // namespace

void InputWidths::add(InputForm form, std::int64_t k) {
  std::int64_t& longest = widest[static_cast<std::size_t>(form)];
  longest = std::max(longest, k);
}

std::unique_ptr<WeightSizes> cpu_weight_sizes(Compute compute, InputWidths* widths) {
  return std::make_unique<NotingWeightSizes>(compute, widths);
}

InputWidths input_widths(const ModelSpec& spec, Compute compute) {
  InputWidths widths;
  const InputForm form = compute == Compute::kBf16 ? InputForm::kBf16 : InputForm::kFp32;
  widths.add(form, spec.hidden_size);
  widths.add(form, spec.intermediate_size);
  if (spec.count(LayerKind::kFullAttention) > 0) {
    widths.add(form, std::int64_t{spec.attention.heads} * spec.attention.head_dim);
  }
  if (spec.gdn) widths.add(form, std::int64_t{spec.gdn->value_heads} * spec.gdn->value_dim);
  if (spec.moe) {
    widths.add(form, std::max(spec.moe->intermediate, spec.moe->shared_intermediate));
    widths.add(InputForm::kFp32, spec.hidden_size);  // the router
  }
  return widths;
}

std::size_t packed_input_bytes(const kernels::KernelTable& kernels, InputForm form, std::int64_t rows, std::int64_t k) {
  const auto m = static_cast<int>(rows);
  return form == InputForm::kBf16 ? kernels.packed_x_bytes_bf16(m, static_cast<int>(k))
                                  : kernels.packed_x_bytes_f32(m, static_cast<int>(k));
}

Workspace cpu_workspace(const ModelSpec& spec, const PoolOptions& pools, const InputWidths& widths,
                        const kernels::KernelTable& kernels, std::size_t threads) {
  Workspace sizes;
  sizes.threads = threads;
  const std::int64_t tokens = pools.max_batch_tokens;
  if (spec.gdn) {
    sizes.conv = floats(tokens * spec.gdn->conv_channels());
    sizes.gates = floats(2 * tokens * spec.gdn->value_heads);
  }
  for (std::size_t form = 0; form < kInputForms; ++form) {
    if (widths.widest[form] == 0) continue;
    sizes.packed[form] = packed_input_bytes(kernels, static_cast<InputForm>(form), tokens, widths.widest[form]);
  }
  if (spec.moe) sizes.experts = expert_workspace(spec, tokens, kernels);
  if (spec.count(LayerKind::kFullAttention) > 0) {
    sizes.rope = floats(tokens * (spec.attention.rope.rotary_dim / 2) * 2);
    sizes.attention = attention_workspace(spec.attention, pools.max_sequence_tokens, has_codes(pools), kernels);
  }
  return sizes;
}

std::int64_t Workspace::bytes() const {
  std::size_t total = rope + experts.lists;
  for (const std::size_t buffer : {conv, gates, packed[0], packed[1], packed[2], attention.per_thread() * threads,
                                   attention.split, experts.hidden, experts.per_thread() * threads}) {
    total += platform::AlignedBuffer::padded_bytes(buffer);
  }
  return static_cast<std::int64_t>(total);
}

std::int64_t activation_stride(std::int64_t cols) {
  return (cols + 15) / 16 * 16;
}

std::int64_t activation_bytes(std::int64_t rows, std::int64_t cols) {
  return static_cast<std::int64_t>(platform::AlignedBuffer::padded_bytes(floats(rows * activation_stride(cols))));
}

}  // namespace sterling::backend
