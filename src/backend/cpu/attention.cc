// Paged attention. Work is cut into units: one KV head and a few query tokens of one sequence. A unit forms its partial results at the
// key spans that kernels/contract.h fixes and merges them in order, so that its bits depend on nothing but the sequence.
//
// Two ways to share units out, same bits: whole units per thread (prefill, many sequences), or single spans per thread and a merge
// afterwards (few sequences at great depth).
#include <algorithm>
#include <cstring>
#include <utility>

#include "backend/cpu/cpu_backend_impl.h"
#include "backend/cpu/kv_code.h"
#include "base/check.h"

namespace sterling::backend {
namespace {

constexpr std::int64_t kSpanTokens = kernels::kSpanTokens;
constexpr std::int64_t kTilesPerSpan = kernels::kSpanTokens / kernels::kTileTokens;
static_assert(plan::kBlockTokens == kernels::kTileTokens, "a KV block is one tile");

std::int64_t spans_of(std::int64_t tokens) {
  return (tokens + kSpanTokens - 1) / kSpanTokens;
}

}  // namespace

Status CpuBackend::configure_attention(const AttentionWorkspace& sizes) {
  attention_rows_ = static_cast<std::int32_t>(sizes.rows);
  auto memory = platform::AlignedBuffer::allocate(sizes.per_thread() * pool_.threads(), "attention workspace");
  if (!memory) return memory.error();
  attention_memory_ = std::move(*memory);
  attention_scratch_.resize(pool_.threads());
  for (std::size_t thread = 0; thread < pool_.threads(); ++thread) {
    std::byte* at = attention_memory_.data() + thread * sizes.per_thread();
    const auto take = [&at](std::size_t bytes) { return std::exchange(at, at + bytes); };
    AttentionScratch& scratch = attention_scratch_[thread];
    scratch.q = reinterpret_cast<float*>(take(sizes.head));
    scratch.merged = reinterpret_cast<float*>(take(sizes.head));
    scratch.packed_q = take(sizes.packed);
    scratch.kernel = take(sizes.kernel);
    scratch.partials.max = reinterpret_cast<float*>(take(sizes.stat));
    scratch.partials.sum = reinterpret_cast<float*>(take(sizes.stat));
    scratch.partials.out = reinterpret_cast<float*>(take(sizes.partial));
  }
  split_rows_ = sizes.split_rows;
  auto split = platform::AlignedBuffer::allocate(sizes.split, "attention workspace");
  if (!split) return split.error();
  split_memory_ = std::move(*split);
  return {};
}

void CpuBackend::collect_units(const AttentionSpec& spec) {
  const std::int32_t group = spec.heads / spec.kv_heads;
  const std::int32_t tokens_per_unit = std::max(1, attention_rows_ / group);
  units_.clear();
  for (std::size_t s = 0; s < slices_.size(); ++s) {
    const auto tokens = static_cast<std::int32_t>(slices_[s].tokens.size());
    for (std::int32_t begin = 0; begin < tokens; begin += tokens_per_unit) {
      const std::int32_t end = std::min(tokens, begin + tokens_per_unit);
      const auto spans = static_cast<std::int32_t>(spans_of(slices_[s].start_position + end));
      for (std::int32_t head = 0; head < spec.kv_heads; ++head) {
        units_.push_back({static_cast<std::int32_t>(s), head, begin, end, spans, 0});
      }
    }
  }
  // The longest first: a late long unit would leave the other threads idle.
  std::stable_sort(units_.begin(), units_.end(),
                   [](const AttentionUnit& a, const AttentionUnit& b) { return a.spans > b.spans; });
}

void CpuBackend::pack_queries(const AttentionSpec& spec, const AttentionUnit& unit, Matrix q,
                              const AttentionScratch& scratch) {
  const std::int64_t group = spec.heads / spec.kv_heads;
  const std::int64_t first = slice_begin_[static_cast<std::size_t>(unit.slice)] + unit.token_begin;
  const std::int64_t tokens = unit.token_end - unit.token_begin;
  const std::int64_t run = group * spec.head_dim;
  for (std::int64_t t = 0; t < tokens; ++t) {
    std::memcpy(scratch.q + t * run, q.data + (first + t) * q.ld + unit.kv_head * run,
                static_cast<std::size_t>(run) * 4);
  }
  const auto m = static_cast<int>(tokens * group);
  const auto ld = static_cast<std::size_t>(spec.head_dim);
  if (bf16() && kv_format().k != plan::KvType::kFp32) {
    kernels_.pack_x_bf16(scratch.q, ld, m, spec.head_dim, 0, m, scratch.packed_q);
  } else {
    kernels_.pack_x_f32(scratch.q, ld, m, spec.head_dim, 0, m, bf16(), scratch.packed_q);
  }
}

void CpuBackend::run_span(const AttentionArgs& args, const AttentionUnit& unit, std::int32_t span,
                          const AttentionScratch& scratch, const Partials& out) {
  const AttentionSpec& spec = *args.spec;
  const SequenceSlice& slice = slices_[static_cast<std::size_t>(unit.slice)];
  const std::int32_t group = spec.heads / spec.kv_heads;
  const std::int32_t m = (unit.token_end - unit.token_begin) * group;
  const std::int64_t first_key = span * kSpanTokens;
  const std::int64_t keys = std::min<std::int64_t>(kSpanTokens, slice.start_position + unit.token_end - first_key);

  const void* k_tiles[kTilesPerSpan];
  const void* v_tiles[kTilesPerSpan];
  const std::int64_t tiles = (keys + kernels::kTileTokens - 1) / kernels::kTileTokens;
  for (std::int64_t tile = 0; tile < tiles; ++tile) {
    const std::int32_t block = slice.block_table[static_cast<std::size_t>(span * kTilesPerSpan + tile)];
    k_tiles[tile] = kv_.k_tile(args.kv_layer, block, unit.kv_head);
    v_tiles[tile] = kv_.v_tile(args.kv_layer, block, unit.kv_head);
  }
  std::int32_t visible[512];
  STERLING_CHECK(m <= 512);
  for (std::int32_t row = 0; row < m; ++row) {
    const std::int64_t position = slice.start_position + unit.token_begin + row / group;
    visible[row] = static_cast<std::int32_t>(std::clamp<std::int64_t>(position + 1 - first_key, 0, kSpanTokens));
  }
  kernels::AttentionSpanArgs call{};
  call.q = scratch.packed_q;
  call.k_tiles = k_tiles;
  call.v_tiles = v_tiles;
  call.tiles = static_cast<int>(tiles);
  call.m = m;
  call.head_dim = spec.head_dim;
  // One rounding, before any score.
  call.scale = spec.scale * kv_scale(args.kv_layer, unit.kv_head, false);
  call.v_scale = kv_scale(args.kv_layer, unit.kv_head, true);
  call.k_code = kv_code(kv_format().k);
  call.v_code = kv_code(kv_format().v);
  call.wide = !bf16();
  call.visible = visible;
  call.max = out.max;
  call.sum = out.sum;
  call.out = out.out;
  call.scratch = scratch.kernel;
  kernels_.attention_span(&call);
}

void CpuBackend::merge_unit(const AttentionSpec& spec, const AttentionUnit& unit, const Partials& partials,
                            float* merged, Matrix out) {
  const std::int64_t group = spec.heads / spec.kv_heads;
  const std::int64_t tokens = unit.token_end - unit.token_begin;
  kernels::AttentionMergeArgs call{};
  call.max = partials.max;
  call.sum = partials.sum;
  call.out = partials.out;
  call.spans = unit.spans;
  call.m = static_cast<int>(tokens * group);
  call.head_dim = spec.head_dim;
  call.result = merged;
  call.ld = static_cast<std::size_t>(spec.head_dim);
  kernels_.attention_merge(&call);
  const std::int64_t first = slice_begin_[static_cast<std::size_t>(unit.slice)] + unit.token_begin;
  const std::int64_t run = group * spec.head_dim;
  for (std::int64_t t = 0; t < tokens; ++t) {
    std::memcpy(out.data + (first + t) * out.ld + unit.kv_head * run, merged + t * run,
                static_cast<std::size_t>(run) * 4);
  }
}

void CpuBackend::attention(const AttentionArgs& args, Matrix q, Matrix out) {
  const AttentionSpec& spec = *args.spec;
  const std::int32_t group = spec.heads / spec.kv_heads;
  collect_units(spec);

  split_jobs_.clear();
  std::int64_t rows = 0;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    AttentionUnit& unit = units_[u];
    unit.first_partial = static_cast<std::int32_t>(rows);
    for (std::int32_t span = 0; span < unit.spans; ++span) split_jobs_.push_back({static_cast<std::int32_t>(u), span});
    rows += std::int64_t{unit.spans} * (unit.token_end - unit.token_begin) * group;
  }
  const bool split = units_.size() < pool_.threads() * 4 && split_jobs_.size() > units_.size() && rows <= split_rows_;
  if (!split) {
    pool_.parallel(units_.size(), [&](std::size_t u, std::size_t thread) {
      const AttentionUnit& unit = units_[u];
      const AttentionScratch& scratch = attention_scratch_[thread];
      const std::int64_t m = std::int64_t{unit.token_end - unit.token_begin} * group;
      pack_queries(spec, unit, q, scratch);
      for (std::int32_t span = 0; span < unit.spans; ++span) {
        const Partials part{scratch.partials.max + span * m, scratch.partials.sum + span * m,
                            scratch.partials.out + span * m * spec.head_dim};
        run_span(args, unit, span, scratch, part);
      }
      merge_unit(spec, unit, scratch.partials, scratch.merged, out);
    });
    return;
  }
  float* const memory = split_memory_.as<float>().data();
  const auto partials_at = [&](std::int64_t row) {
    return Partials{memory + row, memory + split_rows_ + row, memory + 2 * split_rows_ + row * spec.head_dim};
  };
  pool_.parallel(split_jobs_.size(), [&](std::size_t job, std::size_t thread) {
    const AttentionUnit& unit = units_[static_cast<std::size_t>(split_jobs_[job].unit)];
    const AttentionScratch& scratch = attention_scratch_[thread];
    const std::int64_t m = std::int64_t{unit.token_end - unit.token_begin} * group;
    pack_queries(spec, unit, q, scratch);
    run_span(args, unit, split_jobs_[job].span, scratch, partials_at(unit.first_partial + split_jobs_[job].span * m));
  });
  pool_.parallel(units_.size(), [&](std::size_t u, std::size_t thread) {
    merge_unit(spec, units_[u], partials_at(units_[u].first_partial), attention_scratch_[thread].merged, out);
  });
}

}  // namespace sterling::backend
