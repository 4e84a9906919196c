#include "lab/inspect.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "lab/inspect_dimensions.h"
#include "lab/inspect_kv.h"
#include "lab/inspect_weights.h"
#include "lab/parameter_count.h"
#include "model/model.h"

namespace sterling::lab {
namespace {

namespace json = boost::json;

// What the metadata says about quantised weights; empty when it announces none.
std::string announced_weight_format(const formats::Checkpoint& checkpoint) {
  const auto text_of = [](const json::object* section, std::string_view key) -> std::string {
    const json::value* value = section == nullptr ? nullptr : section->if_contains(key);
    return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
  };
  const json::object* own = quantization_section(checkpoint.config());
  const json::object* hf = quantization_section_of_hf_quant(checkpoint.hf_quant_config());
  for (const json::object* section : {hf, own}) {
    std::string algo = text_of(section, "quant_algo");
    if (!algo.empty()) return algo;
  }
  std::string method = text_of(own, "quant_method");
  if (method == "modelopt") return {};  // without quant_algo: K/V only
  const std::string format = text_of(own, "format");
  return format.empty() ? method : method + " " + format;
}

// Bits of declared input activations, the smallest of all groups; empty when they stay as they are.
std::optional<std::int64_t> activation_bits(const formats::Checkpoint& checkpoint) {
  std::optional<std::int64_t> bits;
  const json::object* section = quantization_section(checkpoint.config());
  const json::value* groups = section == nullptr ? nullptr : section->if_contains("config_groups");
  if (groups != nullptr && groups->is_object()) {
    for (const auto& [name, group] : groups->get_object()) {
      const json::value* input = group.is_object() ? group.get_object().if_contains("input_activations") : nullptr;
      if (input == nullptr || !input->is_object()) continue;
      const auto value = config_integer(input->get_object(), {"num_bits"});
      if (value && *value < 16) bits = std::min(bits.value_or(*value), *value);
    }
    return bits;
  }
  const json::object* hf = quantization_section_of_hf_quant(checkpoint.hf_quant_config());
  const json::value* algo = hf == nullptr ? nullptr : hf->if_contains("quant_algo");
  if (algo != nullptr && algo->is_string()) {
    if (algo->get_string() == "NVFP4") return 4;
    if (algo->get_string() == "FP8" || algo->get_string() == "FP8_PER_CHANNEL_PER_TOKEN") return 8;
  }
  const json::value* scheme = section == nullptr ? nullptr : section->if_contains("activation_scheme");
  return scheme != nullptr && scheme->is_string() ? std::optional<std::int64_t>(8) : std::nullopt;
}

void lint_quantisation(const formats::Checkpoint& checkpoint, std::int64_t quantised_tensors, Inspection& result) {
  const std::string announced = announced_weight_format(checkpoint);
  if (!announced.empty() && result.weights_present && quantised_tensors == 0) {
    result.lint.push_back({LintSeverity::kWarning, "announced_but_not_quantised", "config.json",
                           fmt::format("the configuration announces {} weights, no tensor is quantised", announced)});
  }
  if (const auto bits = activation_bits(checkpoint)) {
    result.lint.push_back(
        {LintSeverity::kWarning, "activations_quantised", "config.json",
         fmt::format("the checkpoint declares {}-bit input activations: GPU engines round every activation of "
                     "those layers, Sterling does not",
                     *bits)});
  }
}

void lint_text(const formats::Checkpoint& checkpoint, Inspection& result) {
  if (!checkpoint.weights_present()) return;
  if (!checkpoint.tokenizer_json() && checkpoint.gguf_tokenizer() == nullptr) {
    result.lint.push_back({LintSeverity::kWarning, "tokenizer_missing", "tokenizer.json",
                           "no tokenizer: only requests with token ids can be served"});
  }
  if (checkpoint.chat_template() == nullptr) {
    result.lint.push_back({LintSeverity::kWarning, "chat_template_missing", "chat_template.jinja",
                           "no chat template: chat requests need --chat-template"});
  }
}

void check_support(const formats::Checkpoint& checkpoint, Inspection& result) {
  auto checked = model::check(checkpoint);
  if (checked) {
    const std::string announced = announced_weight_format(checkpoint);
    if (!checkpoint.weights_present() && !announced.empty()) {
      result.unsupported_reason =
          fmt::format("{}: {} weights are not supported; accepted: BF16, FP16, FP32 and GGUF block types",
                      checkpoint.config_file(), announced);
      result.lint.push_back({LintSeverity::kError, "unsupported", "quantization_config", *result.unsupported_reason});
      return;
    }
    result.supported = true;
    result.kv_bytes_per_token = kv_bytes_per_token(checked->spec);
    for (const auto& skipped : checked->skipped) {
      result.lint.push_back({LintSeverity::kNote, "tensors_skipped", "",
                             fmt::format("{}: {} tensors, {} bytes", skipped.what, skipped.tensors, skipped.bytes)});
    }
    return;
  }
  Error error = checked.error();
  // A packed weight has another shape than its matrix: what stops it is the packing.
  if (const TensorView* tensor = checkpoint.find(error.where); tensor != nullptr && tensor->dtype == DType::kU8) {
    error =
        make_error(ErrorCode::kUnsupported,
                   fmt::format("{}: tensor {} is stored as packed U8; accepted: F32, F16, BF16 and GGUF block types",
                               tensor->file, tensor->name),
                   tensor->name);
  }
  result.unsupported_reason = error.message;
  // A file that contradicts its own configuration is a fault of the checkpoint; the rest is a limit of this version.
  const bool fault = error.code == ErrorCode::kCorrupt || error.code == ErrorCode::kNotFound;
  result.lint.push_back(
      {LintSeverity::kError, fault ? "checkpoint_inconsistent" : "unsupported", error.where, error.message});
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
  check_support(checkpoint, result);

  std::int64_t quantised = 0;
  if (result.weights_present) {
    WeightSummary summary = summarise_weights(checkpoint.tensors(), result.dimensions);
    result.parameters = summary.parameters;
    result.bytes = summary.bytes;
    result.weights = std::move(summary.groups);
    result.lint.insert(result.lint.end(), summary.lint.begin(), summary.lint.end());
    quantised = summary.quantised_tensors;
  } else {
    result.parameters = count_parameters(checkpoint.config(), result.dimensions);
  }
  KvInspection kv = inspect_kv(checkpoint, result.dimensions);
  result.kv_cache = std::move(kv.facts);
  result.lint.insert(result.lint.end(), kv.lint.begin(), kv.lint.end());
  lint_quantisation(checkpoint, quantised, result);
  lint_text(checkpoint, result);
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
