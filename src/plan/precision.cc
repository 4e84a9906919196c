#include "plan/precision.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"
#include "plan/memory.h"
#include "plan/precision_kv.h"

namespace sterling::plan {
namespace {

// "0-2,4,6-9" of the layers of a kind.
std::string layers_of(const ModelSpec& spec, LayerKind kind) {
  std::string text;
  const std::int32_t count = spec.layer_count();
  for (std::int32_t begin = 0; begin < count; ++begin) {
    if (spec.layers[static_cast<std::size_t>(begin)] != kind) continue;
    std::int32_t end = begin;
    while (end + 1 < count && spec.layers[static_cast<std::size_t>(end) + 1] == kind) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ",", begin);
    if (end > begin) text += fmt::format("-{}", end);
    begin = end;
  }
  return text;
}

// What a group's scales span, by the name of its stored format.
std::string weight_granularity(std::string_view format) {
  if (format == "nvfp4") return "block 16, tensor";
  if (format == "mxfp4" || format == "mxfp8") return "block 32";
  if (format.ends_with("_tensor")) return "tensor";
  if (format.ends_with("_channel")) return "channel";
  if (format.ends_with("_block")) return "block 128x128";
  return "-";
}

// Groups whose products take unrounded FP32 inputs and FP32 weights in every mode, or that are no products at all.
bool always_fp32(std::string_view group) {
  return group == "router" || group == "norms";
}

class Rows {
 public:
  Rows(const PrecisionInput& input, const KvDecision& kv, Precision& precision)
      : input_(input), kv_(kv), precision_(precision), fp32_(precision.compute == "fp32") {}

  void fill() {
    for (const StoredWeights& group : input_.weights) weight(group);
    activations();
    if (input_.spec->count(LayerKind::kFullAttention) > 0) attention();
    if (input_.spec->gdn) state();
    if (input_.spec->moe) {
      plain("router", "all", "fp32", "fp32", "softmax over all experts; a rounded router would pick other experts");
    }
    plain("logits", "-", "fp32", fp32_ ? "fp64" : "fp32", "sampling, log-probabilities and penalties see FP32");
  }

 private:
  PrecisionRow& add(std::string role, std::string layers) {
    PrecisionRow& row = precision_.rows.emplace_back();
    row.role = std::move(role);
    row.layers = std::move(layers);
    row.granularity = row.scale_source = row.requested = row.requested_by = "-";
    return row;
  }

  // Held and computed in one type, at nobody's request.
  void plain(std::string role, std::string layers, std::string type, std::string accumulate, std::string reason) {
    PrecisionRow& row = add(std::move(role), std::move(layers));
    row.stored = row.loaded = row.compute = row.effective = std::move(type);
    row.accumulate = std::move(accumulate);
    row.reason = std::move(reason);
  }

  void weight(const StoredWeights& group) {
    const bool skipped = group.group == "mtp" || group.group == "vision" || group.group == "audio";
    const auto& packed = input_.backend.packed_formats;
    const bool from_codes = std::find(packed.begin(), packed.end(), group.format) != packed.end();
    PrecisionRow& row = add("weights." + group.group, "all");
    row.stored = group.format;
    row.bytes = group.bytes;
    row.bytes_per = "checkpoint";
    row.granularity = weight_granularity(group.format);
    row.scale_source = row.granularity == "-" ? "-" : "checkpoint";
    if (skipped) {
      row.loaded = row.compute = row.accumulate = row.effective = "-";
      row.reason = "known and not used by this version";
      return;
    }
    const bool kept = from_codes && !fp32_ && !always_fp32(group.group);
    row.loaded = row.effective = kept ? group.format : "fp32";
    row.compute = fp32_ || always_fp32(group.group) ? "fp32" : "bf16";
    row.accumulate = fp32_ ? "fp64" : "fp32";
    if (group.group == "embedding") row.compute = row.accumulate = "-";
    if (kept) {
      row.reason = row.granularity == "-" ? "as stored" : "weight-only: kept packed, codes are exact in BF16";
    } else {
      row.reason = group.format == "fp32" ? "as stored" : "decoded exactly to FP32";
    }
  }

  void activations() {
    plain("activations.residual", "all", "fp32", "fp32", "the residual stream is never rounded");
    PrecisionRow& row = add("activations.product_input", "all");
    row.stored = row.loaded = "fp32";
    row.compute = row.effective = precision_.compute;
    row.accumulate = fp32_ ? "fp64" : "fp32";
    row.requested = input_.wishes.compute.value;
    row.requested_by = input_.wishes.compute.by;
    row.reason = fp32_ ? "the reference: nothing is rounded below FP32" : "rounded once, on entry to a product";
    if (input_.declared_activation_bits && *input_.declared_activation_bits < 16) {
      row.reason += fmt::format(
          "; the checkpoint declares {}-bit input activations (engines on GPUs compute W{}A{}): run weight-only here",
          *input_.declared_activation_bits, *input_.declared_activation_bits, *input_.declared_activation_bits);
    }
    plain("norms, rope, gates", "all", "fp32", "fp32", "own exp, log, sin and cos; FTZ and DAZ set");
  }

  void kv_side(const KvSide& side, std::string role, std::int64_t bytes) {
    PrecisionRow& row = add(std::move(role), layers_of(*input_.spec, LayerKind::kFullAttention));
    row.stored = row.loaded = row.effective = std::string(kv_type_name(side.type));
    row.compute = fp32_ || side.type == KvType::kFp32 ? "fp32" : "bf16";
    row.accumulate = "fp32";
    row.granularity = side.granularity;
    row.scale_source = side.scale_source;
    row.requested = side.requested.value;
    row.requested_by = side.requested.by;
    row.reason = side.reason;
    row.bytes = bytes;
    row.bytes_per = "token";
  }

  void attention() {
    const std::int64_t layers = input_.spec->count(LayerKind::kFullAttention);
    const std::int64_t heads = input_.spec->attention.kv_heads;
    const auto per_token = [&](std::int64_t tile_bytes) { return tile_bytes * heads * layers / kBlockTokens; };
    kv_side(kv_.k, "kv.keys", per_token(k_tile_bytes(*input_.spec, kv_.k.type)));
    kv_side(kv_.v, "kv.values", per_token(v_tile_bytes(*input_.spec, kv_.v.type)));
    const std::string layer_text = layers_of(*input_.spec, LayerKind::kFullAttention);
    plain("attention.scores_softmax", layer_text, "fp32", "fp32", "scores and softmax are never rounded");
    const std::string p = fp32_ || kv_.v.type == KvType::kFp32 ? (fp32_ ? "fp32" : "bf16") : "bf16";
    plain("attention.probabilities", layer_text, p, "fp32",
          fp32_ ? "unrounded" : "rounded once, on entry to P·V; the denominator sums them as rounded");
  }

  void state() {
    const std::string layers = layers_of(*input_.spec, LayerKind::kLinearAttention);
    plain("state.recurrent", layers, "fp32", "fp32", "the delta rule's state adds up over the whole sequence");
    precision_.rows.back().bytes = state_bytes_per_sequence(*input_.spec);
    precision_.rows.back().bytes_per = "sequence, with its convolution window";
    plain("state.convolution", layers, "fp32", "fp32", "the window holds the projections before the activation");
  }

  const PrecisionInput& input_;
  const KvDecision& kv_;
  Precision& precision_;
  const bool fp32_;
};

Status check_compute(const PrecisionInput& input) {
  const auto& offered = input.backend.computes;
  if (std::find(offered.begin(), offered.end(), input.wishes.compute.value) != offered.end()) return {};
  std::string text;
  for (const std::string& name : offered) text += (text.empty() ? "" : ", ") + name;
  return make_error(ErrorCode::kUnsupported,
                    fmt::format("--compute: {} can't be done by {}; accepted: {}", input.wishes.compute.value,
                                input.backend.name, text),
                    "--compute");
}

Status check_strict(const Precision& precision) {
  std::string text;
  for (const PrecisionRow& row : precision.rows) {
    if (row.requested == "-" || row.requested == row.effective) continue;
    text += fmt::format("{}{}: requested {} ({}), effective {} ({})", text.empty() ? "" : "; ", row.role, row.requested,
                        row.requested_by, row.effective, row.reason);
  }
  if (text.empty()) return {};
  return make_error(ErrorCode::kVerification, fmt::format("--strict: {}", text), "--strict");
}

}  // namespace

std::string_view kv_scale_state_name(KvScaleState state) {
  switch (state) {
    case KvScaleState::kNotApplicable: return "not_applicable";
    case KvScaleState::kFromCheckpoint: return "from_checkpoint";
    case KvScaleState::kFromFile: return "from_file";
    case KvScaleState::kDefaultedToOne: return "defaulted_1.0";
    case KvScaleState::kPerToken: return "per_token";
  }
  return "unknown";
}

Expected<Precision> resolve_precision(const PrecisionInput& input) {
  STERLING_CHECK(input.spec != nullptr);
  if (Status status = check_compute(input); !status) return status.error();
  Precision precision;
  precision.compute = input.wishes.compute.value;
  auto kv = resolve_kv(input, precision);
  if (!kv) return kv.error();
  Rows(input, *kv, precision).fill();
  if (input.wishes.strict) {
    if (Status status = check_strict(precision); !status) return status.error();
  }
  return precision;
}

}  // namespace sterling::plan
