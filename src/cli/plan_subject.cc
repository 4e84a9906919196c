#include "cli/plan_subject.h"

#include <algorithm>

#include <fmt/format.h>

#include "backend/cpu/cpu_backend.h"
#include "cli/memory_ledger.h"
#include "kernels/dispatch.h"
#include "lab/cache_shape.h"
#include "model/model.h"
#include "model/weight_plan.h"
#include "platform/host_limits.h"

namespace sterling::cli {
namespace {

constexpr std::int64_t kDefaultBatchTokens = 512;  // max_num_batched_tokens of config/serve_settings.cc

// Bytes of K and V projections among those of the attention group: by parameters, as all are stored in one format.
std::int64_t kv_projection_bytes(const PlanSubject& subject, const lab::WeightGroup& group) {
  const lab::ModelDimensions& d = subject.inspection.dimensions;
  if (!subject.spec || !d.hidden_size || group.parameters.value_or(0) <= 0) return 0;
  const AttentionSpec& attention = subject.spec->attention;
  const double share = 2.0 * attention.kv_heads * attention.head_dim * static_cast<double>(*d.hidden_size) *
                       subject.spec->count(LayerKind::kFullAttention) / static_cast<double>(*group.parameters);
  return share > 1.0 ? 0 : static_cast<std::int64_t>(static_cast<double>(group.bytes) * share);
}

std::int64_t share_of(const PlanSubject& subject, const lab::WeightGroup& group, std::int32_t ranks) {
  if (group.group == "norms" || group.group == "router") return group.bytes;
  std::int64_t bytes = group.bytes;
  std::int64_t copied = 0;
  if (group.group == "attention" && subject.spec && ranks > subject.spec->attention.kv_heads) {
    const std::int64_t kv = kv_projection_bytes(subject, group);
    bytes -= kv;
    copied = kv / subject.spec->attention.kv_heads;
  }
  return (bytes + ranks - 1) / ranks + copied;
}

}  // namespace

PlanSubject read_plan_subject(const formats::Checkpoint& checkpoint) {
  PlanSubject subject;
  subject.inspection = lab::inspect(checkpoint);
  model::Examination examination = model::examine(checkpoint);
  subject.spec = std::move(examination.spec);
  subject.shape = subject.spec ? plan::cache_shape(*subject.spec)
                               : lab::read_cache_shape(checkpoint.config(), subject.inspection.dimensions);
  constexpr backend::Compute kCompute = backend::Compute::kBf16;
  if (!subject.spec || !subject.inspection.supported) return subject;
  const auto plan = model::plan_weights(checkpoint, *backend::cpu_weight_sizes(kCompute, &subject.widths));
  if (plan) {
    subject.packed_bytes = plan->packed_bytes;
  } else {
    subject.widths = backend::input_widths(*subject.spec, kCompute);
  }
  return subject;
}

RankWeights rank_weights(const PlanSubject& subject, plan::Engine engine, std::int32_t ranks) {
  RankWeights result;
  if (!subject.inspection.weights || !subject.inspection.bytes) {
    result.assumption = "the weights' bytes are not known from this configuration";
    return result;
  }
  const bool own = engine == plan::Engine::kSterling;
  std::int64_t bytes = 0;
  for (const lab::WeightGroup& group : *subject.inspection.weights) {
    if (group.group == "mtp" || (own && (group.group == "vision" || group.group == "audio"))) continue;
    bytes += share_of(subject, group, ranks);
  }
  std::string shared;
  if (ranks > 1) {
    shared = "; divided among ranks, but for norms and the router, which each rank holds whole";
    if (subject.spec && ranks > subject.spec->attention.kv_heads)
      shared += ", and K and V projections, copied with their heads";
  }
  result.assumption = fmt::format("weights as the checkpoint stores them, without the MTP head{}{}",
                                  own ? " and the vision tower" : "", shared);
  result.bytes = bytes;
  if (own && subject.packed_bytes) {
    const std::int64_t text = subject.inspection.bytes->text;
    const double ratio = text > 0 ? static_cast<double>(*subject.packed_bytes) / static_cast<double>(text) : 1.0;
    result.bytes = ranks == 1 ? *subject.packed_bytes : static_cast<std::int64_t>(static_cast<double>(bytes) * ratio);
    result.assumption = "weights as Sterling packs them, without the MTP head and the vision tower" + shared;
  }
  return result;
}

Expected<std::optional<std::int64_t>> own_workspace(const PlanSubject& subject, std::int64_t max_sequences) {
  if (!subject.spec || !subject.inspection.supported) return std::optional<std::int64_t>();
  const auto limits = platform::read_host_limits();
  if (!limits) return limits.error();
  const auto kernels = kernels::select("auto");
  if (!kernels) return kernels.error();
  backend::PoolOptions pools;
  pools.max_batch_tokens = static_cast<std::int32_t>(std::max<std::int64_t>(kDefaultBatchTokens, max_sequences));
  pools.max_sequence_tokens = subject.spec->max_position_embeddings;
  pools.kv = plan::KvFormat{plan::KvType::kFp8E4m3, plan::KvType::kFp8E4m3};  // needs the most
  return std::optional<std::int64_t>(
      workspace_bytes(*subject.spec, pools, subject.widths, **kernels, limits->compute_threads));
}

}  // namespace sterling::cli
