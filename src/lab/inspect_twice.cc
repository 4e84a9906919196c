#include "lab/inspect_twice.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "formats/sorted_tensors.h"
#include "lab/inspect_findings.h"

namespace sterling::lab {
namespace {

// A name that ends in `ending` holds the same as one that ends in `other` in its place.
struct Pair {
  std::string_view ending;
  std::string_view other;
};

// A part and what it is fused from, and the two layouts of codes and scales.
constexpr std::array<Pair, 12> kPairs{{{".weight_packed", ".weight"},
                                       {".weight_scale_inv", ".weight_scale"},
                                       {".weight_global_scale", ".weight_scale_2"},
                                       {".in_proj_qkvz.weight", ".in_proj_qkv.weight"},
                                       {".in_proj_qkvz.weight", ".in_proj_z.weight"},
                                       {".in_proj_ba.weight", ".in_proj_b.weight"},
                                       {".in_proj_ba.weight", ".in_proj_a.weight"},
                                       {".qkv_proj.weight", ".q_proj.weight"},
                                       {".gate_up_proj.weight", ".gate_proj.weight"},
                                       {".experts.gate_up_proj", ".experts.0.gate_proj.weight"},
                                       {".experts.down_proj", ".experts.0.down_proj.weight"},
                                       {".experts.down_proj", ".experts.0.down_proj.weight_packed"}}};

// Most of many tensors are scales and codes of experts, which no pair ends in.
bool may_end_a_pair(std::string_view name) {
  if (name.ends_with(".weight_scale") || name.ends_with(".input_scale") || name.ends_with("_2")) return false;
  return name.ends_with(".weight_packed") || name.ends_with("_inv") || name.ends_with("_scale") ||
         name.ends_with("_proj") || name.ends_with("qkvz.weight") || name.ends_with("_ba.weight") ||
         name.ends_with("qkv_proj.weight") || name.ends_with("up_proj.weight");
}

class Twins {
 public:
  Twins(const formats::Checkpoint& checkpoint, const model::Examination& examination, Findings& findings)
      : tensors_(checkpoint.tensors()), examination_(examination), findings_(findings) {}

  void check(const TensorView& tensor, const std::string& other) {
    const auto at = static_cast<std::size_t>(&tensor - tensors_.data());
    if (formats::find_near(tensors_, at, other) == tensors_.size()) return;
    const bool stops = is_unused(tensor.name) || is_unused(other);
    findings_.add(
        stops ? LintSeverity::kError : LintSeverity::kWarning, "stored_twice", tensor.name,
        fmt::format("is there and so is {}, for the same part of the model: {}", other,
                    stops ? "one of them is used by nothing" : "one of them is read, the other is not compared"));
  }

 private:
  bool is_unused(std::string_view name) const {
    return std::any_of(examination_.problems.begin(), examination_.problems.end(), [&](const auto& problem) {
      return problem.code == "unused_tensor" && problem.error.where == name;
    });
  }

  std::span<const TensorView> tensors_;
  const model::Examination& examination_;
  Findings& findings_;
};

// "language_model." cut out: the same layer in a file of the whole model and in one of its text alone.
std::string without_language_model(const std::string& name) {
  constexpr std::string_view kPart = "language_model.";
  const std::size_t at = name.find(kPart);
  return at == std::string::npos ? std::string() : name.substr(0, at) + name.substr(at + kPart.size());
}

}  // namespace

void lint_stored_twice(const formats::Checkpoint& checkpoint, const model::Examination& examination,
                       std::vector<LintFinding>& lint) {
  Findings findings(lint);
  Twins twins(checkpoint, examination, findings);
  for (const TensorView& tensor : checkpoint.tensors()) {
    const std::string_view name = tensor.name;
    if (name.ends_with("layernorm.weight") || name.ends_with("embed_tokens.weight")) {
      if (const std::string other = without_language_model(tensor.name); !other.empty()) twins.check(tensor, other);
    } else if (name == "lm_head.weight" && examination.spec && examination.spec->tie_word_embeddings) {
      twins.check(tensor, examination.spec->tensor_prefix + "embed_tokens.weight");
    } else if (may_end_a_pair(name)) {
      for (const Pair& pair : kPairs) {
        if (!name.ends_with(pair.ending)) continue;
        twins.check(tensor, std::string(name.substr(0, name.size() - pair.ending.size())).append(pair.other));
      }
    }
  }
  findings.close();
}

}  // namespace sterling::lab
