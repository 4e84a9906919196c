#include "lab/inspect_lint.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "formats/quantization_config.h"
#include "lab/inspect_findings.h"
#include "lab/quant_layout.h"
#include "quant/decode.h"
#include "quant/stored_weight.h"

namespace sterling::lab {
namespace {

namespace json = boost::json;

bool is_router(std::string_view module) {
  return module.ends_with(".mlp.gate") || module.ends_with(".block_sparse_moe.gate") || module.ends_with(".router");
}

// Does any module or tensor have a name that this pattern matches? Tensors are sorted by name.
bool matches_something(const std::string& pattern, std::span<const TensorView> tensors) {
  const auto module_of = [](std::string_view name) { return name.substr(0, name.rfind('.')); };
  const std::size_t wild = pattern.find_first_of("*?[");
  const bool regular = pattern.starts_with("re:");
  if (!regular && wild != 0) {
    // Everything that can match begins with the part before the first wildcard, or, for a plain name, may also end with it.
    const std::string stem = pattern.substr(0, wild);
    auto at = std::lower_bound(tensors.begin(), tensors.end(), stem,
                               [](const TensorView& t, const std::string& s) { return t.name < s; });
    for (; at != tensors.end() && at->name.starts_with(stem); ++at) {
      if (formats::ModulePatterns::match(pattern, module_of(at->name)) ||
          formats::ModulePatterns::match(pattern, at->name))
        return true;
    }
    if (wild != std::string::npos) return false;
  }
  std::string_view last;
  return std::any_of(tensors.begin(), tensors.end(), [&](const TensorView& tensor) {
    const std::string_view module = module_of(tensor.name);
    if (module == last) return false;
    last = module;
    return formats::ModulePatterns::match(pattern, module);
  });
}

// Formats that the configuration announces, asked for once where they are the same everywhere: a checkpoint has up to 100,000 modules.
class Announced {
 public:
  explicit Announced(const formats::QuantizationConfig& config)
      : config_(config),
        same_(config.layers.empty() &&
              std::all_of(config.groups.begin(), config.groups.end(), [](const auto& g) { return g.linears; })) {
    if (same_) format_ = config.announced_format("");
  }
  std::string_view format(std::string_view module) const { return same_ ? format_ : config_.announced_format(module); }
  // Some group is of modules of a class: which ones can't be told.
  bool vague() const {
    return std::any_of(config_.groups.begin(), config_.groups.end(), [](const auto& g) { return g.other_classes; });
  }

 private:
  const formats::QuantizationConfig& config_;
  bool same_;
  std::string_view format_;
};

void lint_format(const model::WeightBinder::BoundWeight& weight, const formats::QuantizationConfig& config,
                 std::string_view announced, Findings& findings) {
  const std::string_view actual = quant::weight_format_name(weight.format);
  if (announced.empty() || actual.starts_with(announced)) return;
  findings.add(
      LintSeverity::kWarning, "format_contradicts_config", weight.module,
      fmt::format("is {} by its tensors, {} announces {} ({}): it is read as its tensors say, engines that follow "
                  "the configuration read other numbers or refuse it",
                  actual, config.file, config.algorithm_of(weight.module), announced));
}

void lint_contradictions(const formats::Checkpoint& checkpoint, const formats::QuantizationConfig& config,
                         const model::Examination& examination, Findings& findings) {
  for (const std::string& pattern : config.ignored.all()) {
    if (matches_something(pattern, checkpoint.tensors())) continue;
    findings.add(LintSeverity::kNote, "ignore_pattern_unmatched", config.ignored_key,
                 fmt::format("\"{}\" matches no module of this checkpoint: a misspelt name here is a layer read in the "
                             "wrong format elsewhere",
                             pattern));
  }
  const Announced announced(config);
  for (const auto& weight : examination.bound) {
    const bool quantised = weight.format != quant::WeightFormat::kPlain;
    if (quantised == config.announces(weight.module)) {
      if (quantised) lint_format(weight, config, announced.format(weight.module), findings);
      continue;
    }
    if (!quantised) {
      // Left alone by quantisers whether or not their lists say so.
      if (always_plain(weight.module)) continue;
      findings.add(LintSeverity::kWarning, "announced_but_not_quantised", weight.module,
                   fmt::format("{} announces {} for it, its tensor is not quantised: it is read as its tensor says",
                               config.file, config.algorithm_of(weight.module)));
    } else if (!announced.vague()) {
      findings.add(LintSeverity::kWarning, "quantised_unannounced", weight.module,
                   fmt::format("is {} by its tensors; {}: it is read as its tensors say, engines that follow the "
                               "configuration read it as plain numbers",
                               quant::weight_format_name(weight.format),
                               config.announced ? config.file + " says that it is not quantised"
                                                : "no configuration announces quantised weights"));
    }
  }
}

void lint_sensitive(const model::Examination& examination, Findings& findings) {
  for (const auto& weight : examination.bound) {
    if (weight.format == quant::WeightFormat::kPlain) continue;
    const std::string_view format = quant::weight_format_name(weight.format);
    if (weight.module.ends_with("lm_head")) {
      findings.add(LintSeverity::kNote, "lm_head_quantised", weight.module,
                   fmt::format("the output head is {}: every logit carries its rounding", format));
    } else if (is_router(weight.module)) {
      findings.add(LintSeverity::kWarning, "router_quantised", weight.module,
                   fmt::format("the router is {}: rounding it changes which experts run", format));
    }
  }
}

void lint_tensors(const formats::Checkpoint& checkpoint, Findings& findings) {
  std::size_t single_scales = 0;
  std::size_t ones = 0;
  for (const TensorView& tensor : checkpoint.tensors()) {
    const std::string_view name = tensor.name;
    if (name.ends_with(".A_log") && tensor.dtype != DType::kF32 && tensor.dtype != DType::kF64) {
      findings.add(LintSeverity::kNote, "a_log_below_fp32", tensor.name,
                   fmt::format("is stored as {}: decay rates of the recurrent state are rounded for every token",
                               dtype_name(tensor.dtype)));
    }
    const bool norm = name.ends_with("norm.weight") || name.ends_with("layernorm.weight");
    if (norm && (tensor.dtype == DType::kF8E4M3 || tensor.dtype == DType::kU8)) {
      findings.add(LintSeverity::kWarning, "norm_quantised", tensor.name,
                   fmt::format("a norm weight is stored as {}", dtype_name(tensor.dtype)));
    }
    if ((name.ends_with(".weight_scale") || name.ends_with(".weight_scale_2")) && tensor.dtype == DType::kF32 &&
        tensor.elements() == 1) {
      ++single_scales;
      const auto value = quant::decode(tensor);
      if (value && value->front() == 1.0F) ++ones;
    }
  }
  if (single_scales > 0 && ones == single_scales) {
    findings.add(LintSeverity::kWarning, "weight_scales_all_one", "",
                 fmt::format("all {} weight scales are 1.0: nobody measured the weights", ones));
  }
}

// The highest token id of tokenizer.json; -1 when it can't be told.
std::int64_t highest_token_id(std::string_view text) {
  boost::system::error_code error;
  const json::value root = json::parse(text, error);
  if (error || !root.is_object()) return -1;
  std::int64_t highest = -1;
  const auto take = [&highest](const json::value& value) {
    if (value.is_int64()) highest = std::max(highest, value.get_int64());
  };
  if (const json::value* model = root.get_object().if_contains("model"); model != nullptr && model->is_object()) {
    if (const json::value* vocab = model->get_object().if_contains("vocab"); vocab != nullptr && vocab->is_object()) {
      for (const auto& entry : vocab->get_object()) take(entry.value());
    }
  }
  if (const json::value* added = root.get_object().if_contains("added_tokens"); added != nullptr && added->is_array()) {
    for (const json::value& token : added->get_array()) {
      const json::value* id = token.is_object() ? token.get_object().if_contains("id") : nullptr;
      if (id != nullptr) take(*id);
    }
  }
  return highest;
}

}  // namespace

void lint_problems(const model::Examination& examination, std::vector<LintFinding>& lint) {
  Findings findings(lint);
  for (const model::WeightBinder::Problem& problem : examination.problems) {
    const bool limit = problem.code == "config" && problem.error.code == ErrorCode::kUnsupported;
    findings.add(LintSeverity::kError,
                 limit                      ? "unsupported"
                 : problem.code == "config" ? "config_invalid"
                                            : problem.code,
                 problem.error.where, problem.error.message);
  }
  findings.close();
  for (const auto& skipped : examination.skipped) {
    lint.push_back({LintSeverity::kNote, "tensors_skipped", "",
                    fmt::format("{}: {} tensors, {} bytes", skipped.what, skipped.tensors, skipped.bytes)});
  }
}

void lint_quantisation(const formats::Checkpoint& checkpoint, const model::Examination& examination,
                       const KvCacheFacts& kv, std::vector<LintFinding>& lint) {
  Findings findings(lint);
  const auto config =
      formats::read_quantization_config(checkpoint.config(), checkpoint.hf_quant_config(), checkpoint.path());
  if (config) {
    if (config->activation_bits) {
      findings.add(LintSeverity::kWarning, "activations_quantised", config->file,
                   fmt::format("the checkpoint declares {0}-bit input activations (W{1}A{0}): GPU engines round every "
                               "activation of those layers; here weights alone are "
                               "quantised and activations stay BF16",
                               *config->activation_bits, *config->activation_bits == 4 ? 4 : 8));
    }
    if (checkpoint.weights_present()) lint_contradictions(checkpoint, *config, examination, findings);
  }
  lint_sensitive(examination, findings);
  lint_tensors(checkpoint, findings);
  const bool fp8_wish = kv.wish && kv.wish->starts_with("fp8");
  if (fp8_wish && examination.spec && !examination.spec->attention.qk_norm) {
    findings.add(LintSeverity::kWarning, "fp8_kv_without_qk_norm", "config.json",
                 "an FP8 KV cache is wished and the model has no QK-norm: keys have outliers that 3 bits of mantissa "
                 "and one scale per tensor do not hold");
  }
  findings.close();
}

void lint_text(const formats::Checkpoint& checkpoint, const ModelDimensions& dimensions,
               std::vector<LintFinding>& lint) {
  if (!checkpoint.weights_present()) return;
  const auto tokenizer = checkpoint.tokenizer_json();
  if (!tokenizer && checkpoint.gguf_tokenizer() == nullptr) {
    lint.push_back({LintSeverity::kWarning, "tokenizer_missing", "tokenizer.json",
                    "no tokenizer: only requests with token ids can be served"});
  }
  if (tokenizer && dimensions.vocab_size) {
    const std::int64_t highest = highest_token_id(*tokenizer);
    if (highest >= *dimensions.vocab_size) {
      lint.push_back(
          {LintSeverity::kWarning, "tokenizer_beyond_vocabulary", "tokenizer.json",
           fmt::format(
               "has token id {}, the model's vocab_size is {}: the model loads, and requests that hold such a token "
               "are refused",
               highest, *dimensions.vocab_size)});
    } else if (highest >= 0 && highest + 1 < *dimensions.vocab_size) {
      lint.push_back({LintSeverity::kNote, "vocabulary_padded", "tokenizer.json",
                      fmt::format("ends at token id {}, the model's vocab_size is {}: the rest is padding", highest,
                                  *dimensions.vocab_size)});
    }
  }
  if (checkpoint.chat_template() == nullptr) {
    lint.push_back({LintSeverity::kWarning, "chat_template_missing", "chat_template.jinja",
                    "no chat template: chat requests need --chat-template"});
  }
}

}  // namespace sterling::lab
