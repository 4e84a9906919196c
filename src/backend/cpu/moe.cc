// Mixture of experts: routing, and the experts' products as two lists of tasks over all experts of the layer.
//
// Every (token, expert) pair is a row; rows are grouped by expert. List 1: gate, up and silu(gate) * up of a chunk of one expert's rows, some
// columns. List 2: some columns of the output; its task goes through all experts in ascending order and adds each one's share, so that
// an output element has one owner and one order of summation, whoever else is in the batch.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "backend/cpu/cpu_backend_impl.h"
#include "base/check.h"

namespace sterling::backend {

Status CpuBackend::configure_moe(const MoeSpec& moe, const ExpertWorkspace& sizes) {
  const auto tokens = static_cast<std::size_t>(pools_.max_batch_tokens);
  const std::size_t pairs = tokens * static_cast<std::size_t>(moe.experts_per_token);
  chosen_.resize(pairs);
  chosen_weight_.resize(pairs);
  shared_scale_.resize(tokens);
  router_margin_.resize(tokens);
  router_magnitude_.resize(tokens);
  row_token_.resize(pairs);
  row_weight_.resize(pairs);
  expert_begin_.resize(static_cast<std::size_t>(moe.experts) + 1);
  chunks_.reserve(pairs / kExpertRows + std::min(pairs, static_cast<std::size_t>(moe.experts)));
  auto hidden = platform::AlignedBuffer::allocate(sizes.hidden, "expert activations");
  if (!hidden) return hidden.error();
  expert_hidden_ = std::move(*hidden);
  auto memory = platform::AlignedBuffer::allocate(sizes.per_thread() * pool_.threads(), "expert scratch");
  if (!memory) return memory.error();
  moe_memory_ = std::move(*memory);
  moe_scratch_.resize(pool_.threads());
  std::byte* next = moe_memory_.data();
  for (MoeScratch& scratch : moe_scratch_) {
    scratch.gathered = reinterpret_cast<float*>(next);
    scratch.product = reinterpret_cast<float*>(next + sizes.rows);
    next += 2 * sizes.rows;
    for (std::size_t form = 0; form < kInputForms; ++form) {
      scratch.packed[form] = next;
      next += sizes.packed[form];
    }
  }
  return {};
}

// The largest logits, equal ones by ascending id, and their probabilities. A NaN is never preferred; it makes every weight NaN.
void CpuBackend::route(const MoeSpec& spec, Matrix router, std::int64_t token) {
  float* logits = router.data + token * router.ld;
  const auto k = static_cast<std::size_t>(spec.experts_per_token);
  const auto experts = static_cast<std::size_t>(spec.experts);
  std::int32_t* chosen = chosen_.data() + static_cast<std::size_t>(token) * k;
  float* weight = chosen_weight_.data() + static_cast<std::size_t>(token) * k;
  std::size_t count = 0;
  float best_rejected = -std::numeric_limits<float>::infinity();
  float magnitude = 0.0F;
  for (std::size_t e = 0; e < experts; ++e) {
    magnitude = std::max(magnitude, std::abs(logits[e]));
    std::size_t at = count;
    while (at > 0 && logits[e] > logits[chosen[at - 1]]) --at;
    if (count == k) best_rejected = std::max(best_rejected, at == k ? logits[e] : logits[chosen[k - 1]]);
    if (at == k) continue;
    if (count < k) ++count;
    for (std::size_t i = count - 1; i > at; --i) chosen[i] = chosen[i - 1];
    chosen[at] = static_cast<std::int32_t>(e);
  }
  router_margin_[static_cast<std::size_t>(token)] = logits[chosen[k - 1]] - best_rejected;
  router_magnitude_[static_cast<std::size_t>(token)] = magnitude;
  const float largest = logits[chosen[0]];
  for (std::size_t e = 0; e < experts; ++e) logits[e] -= largest;
  kernels_.exp(logits, logits, experts);
  double sum = 0.0;
  for (std::size_t e = 0; e < experts; ++e) sum += static_cast<double>(logits[e]);
  const auto total = static_cast<float>(sum);
  double kept = 0.0;
  for (std::size_t i = 0; i < k; ++i) {
    weight[i] = logits[chosen[i]] / total;
    kept += static_cast<double>(weight[i]);
  }
  if (!spec.norm_topk) return;
  const auto divisor = static_cast<float>(kept);
  for (std::size_t i = 0; i < k; ++i) weight[i] /= divisor;
}

// Sorts the pairs by expert and token, and cuts each expert's into chunks.
void CpuBackend::group_rows(const MoeSpec& spec, std::int64_t tokens) {
  const auto k = static_cast<std::size_t>(spec.experts_per_token);
  const std::size_t pairs = static_cast<std::size_t>(tokens) * k;
  std::fill(expert_begin_.begin(), expert_begin_.end(), 0);
  for (std::size_t i = 0; i < pairs; ++i) ++expert_begin_[static_cast<std::size_t>(chosen_[i]) + 1];
  chunks_.clear();
  for (std::int32_t e = 0; e < spec.experts; ++e) {
    const std::int32_t begin = expert_begin_[static_cast<std::size_t>(e)];
    const std::int32_t end = expert_begin_[static_cast<std::size_t>(e) + 1] += begin;
    for (std::int32_t row = begin; row < end; row += kExpertRows) {
      chunks_.push_back({e, row, std::min(end, row + kExpertRows)});
    }
  }
  // expert_begin_ now serves as the next free row of each expert.
  for (std::size_t i = 0; i < pairs; ++i) {
    const auto row = static_cast<std::size_t>(expert_begin_[static_cast<std::size_t>(chosen_[i])]++);
    row_token_[row] = static_cast<std::int32_t>(i / k);
    row_weight_[row] = chosen_weight_[i];
  }
}

Matrix CpuBackend::gather_rows(const ExpertChunk& chunk, Matrix x, const MoeScratch& scratch) const {
  const std::int32_t* tokens = row_token_.data() + chunk.begin;
  const std::int64_t rows = chunk.end - chunk.begin;
  // Already one after another (always so in a step of one token).
  if (tokens[rows - 1] - tokens[0] == rows - 1) return {x.data + tokens[0] * x.ld, rows, x.cols, x.ld};
  for (std::int64_t r = 0; r < rows; ++r) {
    std::memcpy(scratch.gathered + r * x.cols, x.data + tokens[r] * x.ld,
                static_cast<std::size_t>(x.cols) * sizeof(float));
  }
  return {scratch.gathered, rows, x.cols, x.cols};
}

void CpuBackend::run_expert_panels(const PackedLinear& w, const void* packed, std::int64_t rows,
                                   std::int64_t panel_begin, std::int64_t panel_end, float* out,
                                   std::int64_t ldo) const {
  kernels::GemmArgs gemm{};
  gemm.x = packed;
  gemm.out = out;
  gemm.ldo = static_cast<std::size_t>(ldo);
  gemm.m = static_cast<int>(rows);
  gemm.row_end = gemm.m;
  gemm.panel_begin = static_cast<int>(panel_begin);
  gemm.panel_end = static_cast<int>(panel_end);
  run_gemm(w, gemm);
}

void CpuBackend::expert_gate_up(const MoeArgs& args, const ExpertChunk& chunk, Matrix x, std::int64_t panel_begin,
                                std::int64_t panel_end, const MoeScratch& scratch) {
  const PackedLinear& gate = linears_[static_cast<std::size_t>(args.gate.index + chunk.expert)];
  const PackedLinear& up = linears_[static_cast<std::size_t>(args.up.index + chunk.expert)];
  Matrix rows = gather_rows(chunk, x, scratch);
  if (gate.rounds_input) rows = round_expert_input(args, chunk, rows, scratch);
  const auto m = static_cast<int>(rows.rows);
  std::byte* gate_input = scratch.packed[static_cast<std::size_t>(gate.input)];
  std::byte* up_input = scratch.packed[static_cast<std::size_t>(up.input)];
  pack_rows(gate.input, rows, 0, m, gate_input);
  if (up_input != gate_input) pack_rows(up.input, rows, 0, m, up_input);
  const std::int64_t width = gate.n;
  float* hidden = expert_hidden_.as<float>().data() + chunk.begin * width;
  run_expert_panels(gate, gate_input, m, panel_begin, panel_end, hidden, width);
  run_expert_panels(up, up_input, m, panel_begin, panel_end, scratch.product, width);
  const std::int64_t begin = panel_begin * kernels::kLanes;
  const auto columns = static_cast<std::size_t>(std::min(panel_end * kernels::kLanes, width) - begin);
  for (std::int64_t r = 0; r < m; ++r) {
    float* row = hidden + r * width + begin;
    kernels_.silu_mul(row, scratch.product + r * width + begin, row, columns);
  }
}

void CpuBackend::expert_down(const MoeArgs& args, Matrix shared, std::int64_t panel_begin, std::int64_t panel_end,
                             const MoeScratch& scratch, Matrix out) {
  const std::int64_t begin = panel_begin * kernels::kLanes;
  const auto columns = static_cast<std::size_t>(std::min(panel_end * kernels::kLanes, out.cols) - begin);
  for (std::int64_t t = 0; t < out.rows; ++t) {
    std::memset(out.data + t * out.ld + begin, 0, columns * sizeof(float));
  }
  for (const ExpertChunk& chunk : chunks_) {
    const PackedLinear& down = linears_[static_cast<std::size_t>(args.down.index + chunk.expert)];
    const std::int64_t rows = chunk.end - chunk.begin;
    std::byte* input = scratch.packed[static_cast<std::size_t>(down.input)];
    const Matrix hidden{expert_hidden_.as<float>().data() + chunk.begin * down.k, rows, down.k, down.k};
    pack_rows(down.input, hidden, 0, static_cast<int>(rows), input);
    run_expert_panels(down, input, rows, panel_begin, panel_end, scratch.product, out.cols);
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto row = static_cast<std::size_t>(chunk.begin + r);
      kernels_.scale_add(scratch.product + r * out.cols + begin, row_weight_[row],
                         out.data + row_token_[row] * out.ld + begin, columns);
    }
  }
  for (std::int64_t t = 0; t < shared.rows; ++t) {
    kernels_.scale_add(shared.data + t * shared.ld + begin, shared_scale_[static_cast<std::size_t>(t)],
                       out.data + t * out.ld + begin, columns);
  }
}

void CpuBackend::moe(const MoeArgs& args, Matrix x, Matrix router, Matrix shared, Matrix shared_gate, Matrix out) {
  const MoeSpec& spec = *args.spec;
  STERLING_CHECK(x.rows <= pools_.max_batch_tokens && router.cols == spec.experts && out.cols == x.cols);
  if (x.rows == 0) return;
  routed_tokens_ = x.rows;
  parallel_rows(x.rows, router.cols, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t token = begin; token < end; ++token) {
      route(spec, router, token);
      if (shared.rows == 0) continue;
      const float one = 1.0F;
      kernels_.sigmoid_mul(&one, shared_gate.data + token * shared_gate.ld,
                           &shared_scale_[static_cast<std::size_t>(token)], 1);
    }
  });
  group_rows(spec, x.rows);
  if (options_.activations) experts_input_scale_ = emulated_scale(x, 0.0F);

  // Large tasks spare packing a chunk's input again for every one; small ones keep all threads busy to the end.
  const auto threads = static_cast<std::int64_t>(pool_.threads());
  const auto chunks = static_cast<std::int64_t>(chunks_.size());
  const std::int64_t panels = linears_[static_cast<std::size_t>(args.gate.index)].panel_count();
  const std::int64_t group = std::clamp<std::int64_t>(chunks * panels / (threads * 8), 4, 32);
  const std::int64_t groups = (panels + group - 1) / group;
  pool_.parallel(static_cast<std::size_t>(chunks * groups), [&](std::size_t task, std::size_t thread) {
    const auto index = static_cast<std::int64_t>(task);
    const std::int64_t begin = index % groups * group;
    expert_gate_up(args, chunks_[static_cast<std::size_t>(index / groups)], x, begin, std::min(panels, begin + group),
                   moe_scratch_[thread]);
  });

  if (options_.activations) round_expert_hidden(args, x.rows * spec.experts_per_token);
  const std::int64_t out_panels = linears_[static_cast<std::size_t>(args.down.index)].panel_count();
  const std::int64_t out_group = std::clamp<std::int64_t>(out_panels / (threads * 4), 4, 32);
  pool_.parallel(static_cast<std::size_t>((out_panels + out_group - 1) / out_group),
                 [&](std::size_t task, std::size_t thread) {
                   const std::int64_t begin = static_cast<std::int64_t>(task) * out_group;
                   expert_down(args, shared, begin, std::min(out_panels, begin + out_group), moe_scratch_[thread], out);
                 });
}

RouterChoices CpuBackend::read_choices() const {
  const auto per_token =
      static_cast<std::ptrdiff_t>(router_margin_.empty() ? 0 : chosen_.size() / router_margin_.size());
  const auto first = [](const auto& all, std::int64_t count) { return std::vector(all.begin(), all.begin() + count); };
  return {first(chosen_, routed_tokens_ * per_token), first(chosen_weight_, routed_tokens_ * per_token),
          first(router_margin_, routed_tokens_), first(router_magnitude_, routed_tokens_)};
}

}  // namespace sterling::backend
