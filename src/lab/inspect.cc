#include "lab/inspect.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "lab/announced_weights.h"
#include "lab/inspect_dimensions.h"
#include "lab/inspect_kv.h"
#include "lab/inspect_lint.h"
#include "lab/inspect_scales.h"
#include "lab/inspect_twice.h"
#include "lab/inspect_weights.h"
#include "lab/parameter_count.h"
#include "model/model.h"

namespace sterling::lab {
namespace {

namespace json = boost::json;

void take_examination(const model::Examination& examination, Inspection& result) {
  result.supported = examination.problems.empty();
  result.loadable = result.supported && result.weights_present;
  if (examination.spec) result.kv_bytes_per_token = kv_bytes_per_token(*examination.spec);
  if (!examination.problems.empty()) {
    result.unsupported_reason = examination.problems.front().error.message;
    result.load_error = result.unsupported_reason;
  } else if (!result.weights_present) {
    result.load_error = "there are no weights beside the configuration";
  }
  lint_problems(examination, result.lint);
}

// Bytes and groups of a configuration without weights. Taken only if the list and the count of parameters, made independently, agree.
void take_announced(const formats::Checkpoint& checkpoint, Inspection& result) {
  const auto announced =
      announced_weights(checkpoint.config(), checkpoint.hf_quant_config(), result.dimensions, result.parameters);
  if (!announced) return;
  WeightSummary summary = summarise_weights(announced->tensors, result.dimensions);
  if (summary.parameters.text != result.parameters.text) return;
  result.bytes = summary.bytes;
  if (announced->mtp_note) {
    result.lint.push_back({LintSeverity::kNote, "mtp_without_weights", "config.json", *announced->mtp_note});
  }
  const auto add = [&](std::string_view group, std::optional<std::int64_t> parameters, std::int64_t bytes) {
    if (bytes == 0 || summary.groups.empty()) return;
    summary.groups.push_back({std::string(group), announced->plain_format, std::nullopt, parameters, bytes});
  };
  if (announced->text_only) {
    result.bytes->mtp = announced->mtp_bytes;
    result.bytes->vision = announced->vision_bytes;
    result.bytes->total += announced->mtp_bytes + announced->vision_bytes;
    add("mtp", result.parameters.mtp, announced->mtp_bytes);
    add("vision", result.parameters.vision, announced->vision_bytes);
  }
  result.weights = std::move(summary.groups);
}

}  // namespace

std::string_view lint_severity_name(LintSeverity severity) {
  switch (severity) {
    case LintSeverity::kError: return "error";
    case LintSeverity::kWarning: return "warning";
    case LintSeverity::kNote: return "note";
  }
  return "note";
}

Inspection inspect(const formats::Checkpoint& checkpoint) {
  Inspection result;
  result.path = checkpoint.path();
  result.format = std::string(formats::checkpoint_format_name(checkpoint.format()));
  result.weights_present = checkpoint.weights_present();
  result.dimensions = read_dimensions(checkpoint.config());
  result.kv_bytes_per_token = kv_bytes_per_token(checkpoint.config(), result.dimensions);
  result.state_bytes_per_sequence = state_bytes_per_sequence(checkpoint.config(), result.dimensions);
  const model::Examination examination = model::examine(checkpoint);
  take_examination(examination, result);

  if (result.weights_present) {
    WeightSummary summary = summarise_weights(checkpoint.tensors(), result.dimensions);
    result.parameters = summary.parameters;
    result.bytes = summary.bytes;
    result.weights = std::move(summary.groups);
    result.lint.insert(result.lint.end(), summary.lint.begin(), summary.lint.end());
  } else {
    result.parameters = count_parameters(checkpoint.config(), result.dimensions);
    take_announced(checkpoint, result);
  }
  KvInspection kv = inspect_kv(checkpoint, result.dimensions);
  result.kv_cache = std::move(kv.facts);
  result.lint.insert(result.lint.end(), kv.lint.begin(), kv.lint.end());
  lint_quantisation(checkpoint, examination, result.kv_cache, result.lint);
  if (result.weights_present) {
    lint_stored_twice(checkpoint, examination, result.lint);
    // The one part of the weights' contents that is looked at: what it shows, loading would find.
    const auto fault = lint_block_scales(checkpoint, examination, result.lint);
    if (fault && result.loadable) {
      result.loadable = false;
      result.load_error = fault;
    }
  }
  lint_text(checkpoint, result.dimensions, result.lint);
  std::stable_sort(result.lint.begin(), result.lint.end(),
                   [](const LintFinding& a, const LintFinding& b) { return a.severity < b.severity; });
  return result;
}

Expected<Inspection> inspect(const std::filesystem::path& path) {
  auto checkpoint = formats::Checkpoint::open(path);
  if (!checkpoint) return checkpoint.error();
  return inspect(*checkpoint);
}

}  // namespace sterling::lab
