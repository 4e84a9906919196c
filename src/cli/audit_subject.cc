#include "cli/audit_subject.h"

#include <algorithm>
#include <numeric>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/workspace.h"
#include "cli/memory_ledger.h"
#include "plan/memory.h"

namespace sterling::cli {
namespace {

backend::PoolOptions pools_for(const AuditMachine& machine, const ChoicePlan& choice) {
  backend::PoolOptions pools;
  pools.max_batch_tokens = std::min(machine.chunk, machine.max_tokens);
  pools.max_batch_slices = 1;
  pools.max_sequence_tokens = machine.max_tokens;
  pools.state_slots = 1;
  pools.kv_blocks = (machine.max_tokens + plan::kBlockTokens - 1) / plan::kBlockTokens;
  pools.kv = choice.kv;
  pools.kv_scales = choice.scales;
  return pools;
}

}  // namespace

Expected<std::int64_t> AuditSubject::memory(const formats::Checkpoint& checkpoint, const ModelSpec& spec,
                                            const AuditMachine& machine, const ChoicePlan& choice) {
  backend::InputWidths widths;
  const auto weights = model::plan_weights(checkpoint, *backend::cpu_weight_sizes(choice.compute, &widths));
  if (!weights) return weights.error();
  const backend::PoolOptions pools = pools_for(machine, choice);
  const std::int64_t kv =
      plan::kv_block_layer_bytes(spec, choice.kv) * spec.count(LayerKind::kFullAttention) * pools.kv_blocks;
  return weights->peak_bytes() + kv + plan::state_bytes_per_sequence(spec) +
         workspace_bytes(spec, pools, widths, *machine.kernels, machine.pool->threads());
}

Expected<std::unique_ptr<AuditSubject>> AuditSubject::load(const formats::Checkpoint& checkpoint,
                                                           const AuditMachine& machine, const ChoicePlan& choice) {
  backend::CpuBackendOptions options{choice.compute, machine.kernels, machine.pool};
  if (choice.activations) {
    options.activations = backend::ActivationEmulation{
        *choice.activations, [&choice](const quant::StoredWeight& weight) { return rounds_inputs_of(choice, weight); }};
  }
  std::unique_ptr<AuditSubject> subject(new AuditSubject());
  subject->backend_ = backend::make_cpu_backend(options);
  auto model = model::Model::load(checkpoint, *subject->backend_, {});
  if (!model) return model.error();
  subject->model_ = std::move(*model);
  const backend::PoolOptions pools = pools_for(machine, choice);
  if (Status status = subject->model_->configure(pools); !status) return status.error();
  subject->block_table_.resize(static_cast<std::size_t>(pools.kv_blocks));
  std::iota(subject->block_table_.begin(), subject->block_table_.end(), 0);
  return subject;
}

Status AuditSubject::step(std::span<const std::int32_t> tokens, std::int32_t start, std::span<float> logits) {
  std::vector<std::int32_t> rows(tokens.size());
  std::iota(rows.begin(), rows.end(), 0);
  SequenceSlice slice;
  slice.tokens = tokens;
  slice.start_position = start;
  slice.block_table = block_table_;
  slice.state_slot = 0;
  slice.logit_rows = rows;
  return model_->forward(BatchView{std::span(&slice, 1)}, logits);
}

}  // namespace sterling::cli
