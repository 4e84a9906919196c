#include "cli/serving_report.h"

#include <map>
#include <string>

#include <fmt/format.h>

#include "cli/console.h"
#include "lab/inspect.h"
#include "plan/memory.h"

namespace sterling::cli {
namespace {

// How many matrices are held in which stored format, and where the checkpoint's files contradict themselves or promise something that is
// not done here: tensors decide, metadata is shown.
void log_weights(const Runtime& runtime, const lab::Inspection& inspection, const LogSink& log) {
  std::map<std::string, std::int64_t> formats;
  for (const model::WeightBinder::BoundWeight& weight : runtime.model->bound()) {
    if (weight.format == quant::WeightFormat::kPlain) continue;
    ++formats[std::string(quant::weight_format_name(weight.format))];
  }
  std::string text;
  for (const auto& [format, count] : formats) text += fmt::format("{}{} x {}", text.empty() ? "" : ", ", count, format);
  if (!text.empty()) {
    log(LogLevel::kInfo, fmt::format("Quantised weights: {}; multiplied weight-only, activations in {}", text,
                                     runtime.backend->compute() == backend::Compute::kBf16 ? "BF16" : "FP32"));
  }
  for (const lab::LintFinding& finding : inspection.lint) {
    if (finding.severity == lab::LintSeverity::kNote) continue;
    log(LogLevel::kWarning, fmt::format("Checkpoint: [{}] {}{}{}", finding.code, finding.where,
                                        finding.where.empty() ? "" : ": ", finding.message));
  }
}

}  // namespace

void log_model(const Runtime& runtime, const backend::PoolOptions& pools, const lab::Inspection& inspection,
               const LogSink& log) {
  const ModelSpec& spec = runtime.model->spec();
  const plan::KvFormat format = runtime.backend->kv_format();
  const backend::WeightFootprint weights = runtime.backend->weights();
  log(LogLevel::kInfo,
      fmt::format("Loaded {}: {} layers, {} parameters, weights {} in memory; kernels {}", spec.architecture,
                  spec.layer_count(), weights.parameters, format_bytes(weights.bytes), runtime.backend->description()));
  log(LogLevel::kInfo,
      fmt::format(
          "Weight memory: planned {} bytes, packed {} bytes; loading planned at most {}, the process peaked at {}",
          runtime.weight_plan.packed_bytes, weights.bytes, format_bytes(runtime.weight_plan.peak_bytes()),
          runtime.peak_resident_loading > 0 ? format_bytes(runtime.peak_resident_loading) : "an unknown size"));
  log_weights(runtime, inspection, log);
  for (const model::WeightBinder::Skipped& skipped : runtime.model->skipped()) {
    log(LogLevel::kInfo,
        fmt::format("Not loaded: {} ({} tensors, {})", skipped.what, skipped.tensors, format_bytes(skipped.bytes)));
  }
  std::int64_t expanded = 0;
  for (const TensorView& tensor : runtime.checkpoint->tensors()) expanded += is_block_dtype(tensor.dtype) ? 1 : 0;
  if (expanded > 0) {
    log(LogLevel::kInfo,
        fmt::format("{} GGUF block-quantised tensors are decoded exactly to FP32 and held so", expanded));
  }
  const std::string kv = plan::kv_format_name(format);
  log(LogLevel::kInfo, fmt::format("Using KV cache dtype: {}", kv));
  log(LogLevel::kInfo, fmt::format("KV Cache is allocated. dtype: {}, #tokens: {}, size: {}", kv,
                                   std::int64_t{pools.kv_blocks} * plan::kBlockTokens,
                                   format_bytes(std::int64_t{pools.kv_blocks} * plan::kBlockTokens *
                                                plan::kv_bytes_per_token(spec, format))));
  if (spec.gdn) {
    log(LogLevel::kInfo,
        fmt::format("Recurrent state is allocated. dtype: fp32, #slots: {}, size: {}", pools.state_slots,
                    format_bytes(pools.state_slots * plan::state_bytes_per_sequence(spec))));
  }
  log(LogLevel::kInfo,
      fmt::format("max_total_num_tokens={}, chunked_prefill_size={}, max_running_requests={}, context_len={}",
                  std::int64_t{pools.kv_blocks} * plan::kBlockTokens, pools.max_batch_tokens, pools.max_batch_slices,
                  pools.max_sequence_tokens));
}

}  // namespace sterling::cli
