// The KV cache: what is written into it, how much of that was lost, and what it holds.
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "backend/cpu/cpu_backend_impl.h"
#include "backend/cpu/kv_code.h"
#include "kernels/kv_tiles.h"

namespace sterling::backend {
namespace {

// The list of K or V for a model with `layers` full-attention layers.
Status check_scales(const std::vector<std::vector<float>>& scales, const char* what, std::int64_t layers,
                    std::int64_t kv_heads) {
  if (scales.empty()) return {};
  if (static_cast<std::int64_t>(scales.size()) != layers) {
    return make_error(
        ErrorCode::kInvalidArgument,
        fmt::format("{} scales for {} layers; the model has {} full-attention layers", what, scales.size(), layers));
  }
  for (std::size_t layer = 0; layer < scales.size(); ++layer) {
    const auto count = static_cast<std::int64_t>(scales[layer].size());
    if (count != 1 && count != kv_heads) {
      return make_error(
          ErrorCode::kInvalidArgument,
          fmt::format("{} {} scales in full-attention layer {}; accepted: 1 or one for each of {} KV heads", count,
                      what, layer, kv_heads));
    }
    for (const float scale : scales[layer]) {
      // By class and not by value: subnormal numbers would read as zero where they are flushed.
      if (std::isnormal(scale) && !std::signbit(scale)) continue;
      return make_error(
          ErrorCode::kInvalidArgument,
          fmt::format("a {} scale of {} in full-attention layer {}; accepted: finite and positive, {} or more", what,
                      scale, layer, std::numeric_limits<float>::min()));
    }
  }
  return {};
}

}  // namespace

plan::KvFormat CpuBackend::kv_format() const {
  if (pools_.kv) return *pools_.kv;
  const plan::KvType type = bf16() ? plan::KvType::kBf16 : plan::KvType::kFp32;
  return {type, type};
}

Status CpuBackend::configure_kv(const ModelSpec& spec) {
  const std::int64_t layers = spec.count(LayerKind::kFullAttention);
  const std::int64_t kv_heads = spec.attention.kv_heads;
  if (Status status = check_scales(pools_.kv_scales.k, "K", layers, kv_heads); !status) return status;
  if (Status status = check_scales(pools_.kv_scales.v, "V", layers, kv_heads); !status) return status;
  auto kv = KvPool::allocate(spec, kv_format(), pools_.kv_blocks);
  if (!kv) return kv.error();
  kv_ = std::move(*kv);
  kv_counters_ = std::vector<AtomicKvCounters>(static_cast<std::size_t>(2 * layers));
  return {};
}

float CpuBackend::kv_scale(std::int32_t kv_layer, std::int32_t kv_head, bool value) const {
  const plan::KvFormat format = kv_format();
  const auto& scales = value ? pools_.kv_scales.v : pools_.kv_scales.k;
  if (!plan::needs_scales(value ? format.v : format.k) || scales.empty()) return 1.0F;
  const std::vector<float>& layer = scales[static_cast<std::size_t>(kv_layer)];
  return layer.size() == 1 ? layer[0] : layer[static_cast<std::size_t>(kv_head)];
}

KvCounters CpuBackend::kv_counters(std::int32_t kv_layer, bool value) const {
  const AtomicKvCounters& from = kv_counters_[static_cast<std::size_t>(2 * kv_layer + (value ? 1 : 0))];
  const auto read = [](const std::atomic<std::int64_t>& counter) { return counter.load(std::memory_order_relaxed); };
  return {read(from.written), read(from.clipped), read(from.underflowed), read(from.non_finite)};
}

void CpuBackend::write_kv(const AttentionArgs& args, Matrix k, Matrix v) {
  const AttentionSpec& spec = *args.spec;
  const kernels::KvCode k_code = kv_code(kv_format().k);
  const kernels::KvCode v_code = kv_code(kv_format().v);
  const auto count = [this, &args, &k](bool value, std::int64_t rows, const kernels::KvCounts& counts) {
    AtomicKvCounters& to = kv_counters_[static_cast<std::size_t>(2 * args.kv_layer + (value ? 1 : 0))];
    const auto add = [](std::atomic<std::int64_t>& counter, std::int64_t n) {
      if (n != 0) counter.fetch_add(n, std::memory_order_relaxed);
    };
    add(to.written, rows * k.cols);
    add(to.clipped, counts.clipped);
    add(to.underflowed, counts.underflowed);
    add(to.non_finite, counts.non_finite);
  };
  for (std::size_t s = 0; s < slices_.size(); ++s) {
    const SequenceSlice& slice = slices_[s];
    const std::int64_t first = slice_begin_[s];
    parallel_rows(
        static_cast<std::int64_t>(slice.tokens.size()), 2 * k.cols, [&](std::int64_t begin, std::int64_t end) {
          kernels::KvCounts k_counts;
          kernels::KvCounts v_counts;
          for (std::int64_t t = begin; t < end; ++t) {
            const std::int64_t position = slice.start_position + t;
            const std::int32_t block = slice.block_table[static_cast<std::size_t>(position / plan::kBlockTokens)];
            const auto slot = static_cast<int>(position % plan::kBlockTokens);
            for (std::int32_t head = 0; head < spec.kv_heads; ++head) {
              const float* k_row = k.data + (first + t) * k.ld + std::int64_t{head} * spec.head_dim;
              const float* v_row = v.data + (first + t) * v.ld + std::int64_t{head} * spec.head_dim;
              kernels::write_kv_row(kernels::KvSide::kK, k_code, kv_.k_tile(args.kv_layer, block, head), slot, k_row,
                                    spec.head_dim, kv_scale(args.kv_layer, head, false), k_counts);
              kernels::write_kv_row(kernels::KvSide::kV, v_code, kv_.v_tile(args.kv_layer, block, head), slot, v_row,
                                    spec.head_dim, kv_scale(args.kv_layer, head, true), v_counts);
            }
          }
          count(false, end - begin, k_counts);
          count(true, end - begin, v_counts);
        });
  }
}

void CpuBackend::visit_kv(const AttentionArgs& args, std::span<const std::int32_t> block_table, std::int64_t tokens,
                          bool value, const auto& visit) const {
  for (std::int32_t head = 0; head < args.spec->kv_heads; ++head) {
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int32_t block = block_table[static_cast<std::size_t>(t / plan::kBlockTokens)];
      const std::byte* tile = value ? kv_.v_tile(args.kv_layer, block, head) : kv_.k_tile(args.kv_layer, block, head);
      visit(tile, static_cast<int>(t % plan::kBlockTokens), head, static_cast<std::size_t>(head * tokens + t));
    }
  }
}

std::vector<float> CpuBackend::read_kv(const AttentionArgs& args, std::span<const std::int32_t> block_table,
                                       std::int64_t tokens, bool value) const {
  const int head_dim = args.spec->head_dim;
  const auto dims = static_cast<std::size_t>(head_dim);
  const kernels::KvSide side = value ? kernels::KvSide::kV : kernels::KvSide::kK;
  const kernels::KvCode code = kv_code(value ? kv_format().v : kv_format().k);
  std::vector<float> result(static_cast<std::size_t>(tokens * args.spec->kv_heads) * dims);
  visit_kv(args, block_table, tokens, value,
           [&](const std::byte* tile, int slot, std::int32_t head, std::size_t index) {
             kernels::read_kv_row(side, code, tile, slot, result.data() + index * dims, head_dim,
                                  kv_scale(args.kv_layer, head, value));
           });
  return result;
}

std::vector<std::byte> CpuBackend::read_kv_raw(const AttentionArgs& args, std::span<const std::int32_t> block_table,
                                               std::int64_t tokens, bool value) const {
  const int head_dim = args.spec->head_dim;
  const kernels::KvSide side = value ? kernels::KvSide::kV : kernels::KvSide::kK;
  const kernels::KvCode code = kv_code(value ? kv_format().v : kv_format().k);
  const std::size_t row = static_cast<std::size_t>(head_dim) * kernels::kv_element_bytes(code);
  std::vector<std::byte> result(static_cast<std::size_t>(tokens * args.spec->kv_heads) * row);
  visit_kv(args, block_table, tokens, value, [&](const std::byte* tile, int slot, std::int32_t, std::size_t index) {
    kernels::read_kv_elements(side, code, tile, slot, result.data() + index * row, head_dim);
  });
  return result;
}

std::vector<float> CpuBackend::read_kv_scales(const AttentionArgs& args, std::span<const std::int32_t> block_table,
                                              std::int64_t tokens, bool value) const {
  const kernels::KvSide side = value ? kernels::KvSide::kV : kernels::KvSide::kK;
  const kernels::KvCode code = kv_code(value ? kv_format().v : kv_format().k);
  std::vector<float> result(static_cast<std::size_t>(tokens * args.spec->kv_heads));
  visit_kv(
      args, block_table, tokens, value, [&](const std::byte* tile, int slot, std::int32_t head, std::size_t index) {
        result[index] =
            kernels::read_kv_scale(side, code, tile, slot, args.spec->head_dim, kv_scale(args.kv_layer, head, value));
      });
  return result;
}

void CpuBackend::poke_kv(const AttentionArgs& args, std::span<const std::int32_t> block_table, std::int64_t position,
                         std::int32_t kv_head, std::int32_t dim, bool value, std::uint32_t xor_mask) {
  const std::int32_t block = block_table[static_cast<std::size_t>(position / plan::kBlockTokens)];
  std::byte* const tile = value ? kv_.v_tile(args.kv_layer, block, kv_head) : kv_.k_tile(args.kv_layer, block, kv_head);
  kernels::flip_kv_bits(value ? kernels::KvSide::kV : kernels::KvSide::kK,
                        kv_code(value ? kv_format().v : kv_format().k), tile,
                        static_cast<int>(position % plan::kBlockTokens), dim, xor_mask);
}

}  // namespace sterling::backend
