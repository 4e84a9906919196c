#include "lab/inspect_kv.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "base/float_types.h"
#include "formats/kv_wish.h"
#include "lab/inspect_dimensions.h"

namespace sterling::lab {
namespace {

namespace json = boost::json;

// Values of a small float tensor; empty when it is of another type or too large to be a scale.
std::vector<float> scale_values(const TensorView& tensor) {
  constexpr std::size_t kMostBytes = 1 << 20;
  std::vector<float> values;
  if (tensor.data.size() > kMostBytes) return values;
  const auto read = [&]<typename Stored>(Stored, auto convert) {
    for (std::size_t at = 0; at + sizeof(Stored) <= tensor.data.size(); at += sizeof(Stored)) {
      Stored stored;
      std::memcpy(&stored, tensor.data.data() + at, sizeof stored);
      values.push_back(convert(stored));
    }
  };
  switch (tensor.dtype) {
    case DType::kF32: read(float{}, [](float x) { return x; }); break;
    case DType::kBF16: read(bf16{}, [](bf16 x) { return to_float(x); }); break;
    case DType::kF16: read(fp16{}, [](fp16 x) { return to_float(x); }); break;
    case DType::kF64: read(double{}, [](double x) { return static_cast<float>(x); }); break;
    default: break;
  }
  return values;
}

// How many of a layer's two scales a tensor of this name is: 0 for other tensors.
std::int64_t scales_in_name(std::string_view name) {
  if (name.starts_with("mtp.")) return 0;
  constexpr std::array<std::string_view, 4> kSingle{".k_scale", ".v_scale", ".k_proj.output_scale",
                                                    ".v_proj.output_scale"};
  for (const std::string_view suffix : kSingle) {
    if (name.ends_with(suffix)) return 1;
  }
  return name.ends_with(".kv_scale") ? 2 : 0;  // the deprecated form: one value for both
}

void read_scales(const formats::Checkpoint& checkpoint, KvInspection& result) {
  KvScales& scales = result.facts.scales;
  if (!checkpoint.weights_present()) return;
  scales.found = 0;
  bool all_one = true;
  for (const TensorView& tensor : checkpoint.tensors()) {
    const std::int64_t count = scales_in_name(tensor.name);
    if (count == 0) continue;
    *scales.found += count;
    for (const float value : scale_values(tensor)) {
      if (value != 1.0F) all_one = false;
      if (std::isfinite(value)) {
        scales.min = std::min<double>(scales.min.value_or(value), value);
        scales.max = std::max<double>(scales.max.value_or(value), value);
      }
      if (std::isfinite(value) && value > 0.0F) continue;
      result.lint.push_back(
          {LintSeverity::kError, "kv_scale_invalid", tensor.name,
           fmt::format("{}: tensor {} holds {}; a K/V scale is finite and above 0", tensor.file, tensor.name, value)});
      break;
    }
  }
  if (*scales.found > 0) scales.all_one = all_one;
}

void judge(const formats::Checkpoint& checkpoint, const ModelDimensions& dimensions, KvInspection& result) {
  KvCacheFacts& facts = result.facts;
  if (facts.sources_disagree) {
    std::string what;
    for (const formats::KvWishSource& source : facts.sources) {
      what +=
          fmt::format("{}{} {} = {}", what.empty() ? "" : ", ", source.file, source.key, json::serialize(source.value));
    }
    result.lint.push_back(
        {LintSeverity::kWarning, "kv_wish_sources_disagree", "hf_quant_config.json",
         fmt::format("the checkpoint's files disagree on the KV cache type: {}; engines differ in which "
                     "one they obey",
                     what)});
  }
  const bool quantised = facts.wish && *facts.wish != "bf16" && *facts.wish != "fp16" && *facts.wish != "fp32";
  if (!quantised) return;
  facts.scales.expected = 2 * dimensions.full_attention_layers.value_or(0);
  if (!checkpoint.weights_present()) return;
  if (*facts.scales.found == 0) {
    result.lint.push_back(
        {LintSeverity::kWarning, "kv_wish_without_scales", facts.sources.front().file,
         fmt::format("the checkpoint wishes an {} KV cache and holds no K/V scales; an engine that obeys uses "
                     "1.0",
                     *facts.wish)});
  } else if (facts.scales.expected > 0 && *facts.scales.found < facts.scales.expected) {
    result.lint.push_back({LintSeverity::kWarning, "kv_scales_incomplete", "",
                           fmt::format("{} of {} K/V scales are there; an engine that obeys uses 1.0 for the others",
                                       *facts.scales.found, facts.scales.expected)});
  }
  if (facts.scales.all_one == true) {
    result.lint.push_back({LintSeverity::kWarning, "kv_scales_all_one", "",
                           "every K/V scale is 1.0: either a cast recipe, or nobody calibrated them"});
  }
}

}  // namespace

KvInspection inspect_kv(const formats::Checkpoint& checkpoint, const ModelDimensions& dimensions) {
  KvInspection result;
  formats::KvWish wish = formats::read_kv_wish(checkpoint);
  result.facts.wish = std::move(wish.wish);
  result.facts.sources = std::move(wish.sources);
  result.facts.sources_disagree = wish.sources_disagree;
  read_scales(checkpoint, result);
  judge(checkpoint, dimensions, result);
  return result;
}

}  // namespace sterling::lab
