#include "plan/precision_kv.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"

namespace sterling::plan {
namespace {

constexpr std::string_view kWaysForward =
    "Ways forward: --kv-cache-dtype bf16 (the default: nothing lost beyond BF16); --kv-cache-dtype fp8_e4m3_token (a "
    "scale per token and head, "
    "nothing to calibrate); measure scales with `sterling calibrate` and pass them with --kv-scales FILE; or run with "
    "1.0 knowingly with "
    "--accept-unscaled-kv";

std::string places_text(const MetadataWish& metadata) {
  std::string text;
  for (const MetadataWish::Place& place : metadata.places) {
    text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", place.where, place.text);
  }
  return text;
}

bool has_attention(const ModelSpec& spec) {
  return spec.count(LayerKind::kFullAttention) > 0;
}

// `--kv-cache-dtype checkpoint`.
Status obey_checkpoint(const PrecisionInput& input, KvSide& side) {
  const MetadataWish& metadata = input.metadata;
  if (metadata.disagree) {
    return make_error(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "{} checkpoint: the checkpoint's files disagree on the KV cache type ({}), so there is no one wish to "
            "obey; name the type: {}",
            side.flag, places_text(metadata), offered_kv_types(input.backend)),
        side.flag);
  }
  if (!metadata.wish) {
    side.type = KvType::kBf16;
    side.requested.value = "checkpoint";
    side.reason = "the checkpoint states no KV cache type; bf16 is the default";
    return {};
  }
  const auto type = kv_type_from_name(*metadata.wish);
  if (!type) {
    return make_error(
        ErrorCode::kUnsupported,
        fmt::format(
            "{} checkpoint: the checkpoint wishes a KV cache of {} ({}), which can't be done here; accepted: {}",
            side.flag, *metadata.wish, places_text(metadata), offered_kv_types(input.backend)),
        side.flag);
  }
  side.type = *type;
  side.requested.value = std::string(kv_type_name(*type));
  side.reason = fmt::format("the checkpoint's wish ({}), obeyed as asked", places_text(metadata));
  return {};
}

Expected<KvSide> resolve_side(const PrecisionInput& input, const Requested& own, std::string_view own_flag) {
  KvSide side;
  const bool has_own = !own.value.empty();
  side.requested = has_own ? own : input.wishes.kv;
  side.flag = has_own ? std::string(own_flag) : "--kv-cache-dtype";
  const std::string asked = side.requested.value;
  if (asked == "auto") {
    side.requested.value = "bf16";
    side.reason = side.requested.by_user() ? "auto means bf16, whatever the checkpoint wishes" : "the default";
  } else if (asked == "checkpoint") {
    if (Status status = obey_checkpoint(input, side); !status) return status.error();
    side.requested.by += " checkpoint";
  } else {
    const auto type = kv_type_from_name(asked);
    if (!type) {
      return make_error(ErrorCode::kInvalidArgument,
                        fmt::format("{}: '{}' is no KV cache type; accepted: auto, checkpoint, {}", side.flag, asked,
                                    offered_kv_types(input.backend)),
                        side.flag);
    }
    side.type = *type;
    side.reason = side.requested.by_user() ? "as asked" : "the default";
  }
  const auto& offered = input.backend.kv_types;
  if (std::find(offered.begin(), offered.end(), side.type) == offered.end()) {
    return make_error(ErrorCode::kUnsupported,
                      fmt::format("{}: {} can't be done by {}; accepted: {}", side.flag, kv_type_name(side.type),
                                  input.backend.name, offered_kv_types(input.backend)),
                      side.flag);
  }
  return side;
}

// The scales of one side as they were found.
struct Found {
  std::vector<std::string> missing;  // "layer 3 K"
  bool all_one = false;
  bool per_head = false;
};

Found examine(const PrecisionInput& input, const std::vector<std::vector<float>>& values, std::string_view name) {
  Found found;
  std::size_t attention = 0;
  std::int64_t present = 0;
  std::int64_t ones = 0;
  for (std::size_t layer = 0; layer < input.spec->layers.size(); ++layer) {
    if (input.spec->layers[layer] != LayerKind::kFullAttention) continue;
    const bool there = attention < values.size() && !values[attention].empty();
    if (!there) {
      found.missing.push_back(fmt::format("layer {} {}", layer, name));
    } else {
      ++present;
      found.per_head = found.per_head || values[attention].size() > 1;
      ones +=
          std::all_of(values[attention].begin(), values[attention].end(), [](float x) { return x == 1.0F; }) ? 1 : 0;
    }
    ++attention;
  }
  found.all_one = present > 0 && ones == present;
  return found;
}

std::string shortened(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 4;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kMost); ++i) text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kMost) text += fmt::format(" and {} more", names.size() - kMost);
  return text;
}

// True where the checkpoint looks like the output of ModelOpt's kv_fp8_cast: FP8 announced by ModelOpt, not one scale among the tensors.
bool looks_like_cast_recipe(const PrecisionInput& input) {
  return input.metadata.modelopt && input.metadata.wish == "fp8_e4m3" && input.scales.source != "" &&
         input.scales.found() == 0;
}

std::string what_is_wrong(const PrecisionInput& input, const KvSide& side, const Found& found, std::string_view name) {
  const auto layers = static_cast<std::size_t>(input.spec->count(LayerKind::kFullAttention));
  if (found.missing.size() == layers)
    return fmt::format("{} ({}) needs scales and there are none", name, kv_type_name(side.type));
  if (!found.missing.empty()) {
    return fmt::format("{} ({}) needs a scale in every full-attention layer; {} of {} are missing ({})", name,
                       kv_type_name(side.type), found.missing.size(), layers, shortened(found.missing));
  }
  return fmt::format("all {} scales of {} are 1: either a cast recipe or nobody measured them", name,
                     input.scales.source);
}

// Decides the scales of one side whose type needs them; fills `target` completely.
Status take_scales(const PrecisionInput& input, KvSide& side, std::string_view name,
                   const std::vector<std::vector<float>>& values, std::vector<std::vector<float>>& target,
                   Precision& precision) {
  const Found found = examine(input, values, name);
  const auto layers = static_cast<std::size_t>(input.spec->count(LayerKind::kFullAttention));
  const bool unusable = !found.missing.empty() || found.all_one;
  if (unusable && !input.wishes.accept_unscaled_kv) {
    std::string message = fmt::format("{} {}: {}. Looked for: {}.", side.flag, kv_type_name(side.type),
                                      what_is_wrong(input, side, found, name), input.scales.looked_for);
    if (looks_like_cast_recipe(input)) {
      message +=
          " This is what ModelOpt's cast recipe (kv_fp8_cast, amax pinned to 448) leaves behind, so 1.0 is what its "
          "author meant; keys "
          "and values beyond 448 clip all the same.";
    }
    return make_error(ErrorCode::kInvalidArgument, message + " " + std::string(kWaysForward), side.flag);
  }
  target.assign(layers, {1.0F});
  for (std::size_t layer = 0; layer < std::min(layers, values.size()); ++layer) {
    if (!values[layer].empty()) target[layer] = values[layer];
  }
  side.granularity = found.per_head ? "head" : "tensor";
  const bool none = found.missing.size() == layers || found.all_one;
  side.scale_source = none ? "1.0, accepted by --accept-unscaled-kv" : input.scales.source;
  if (!unusable) return {};
  if (!found.missing.empty() && !none)
    side.scale_source += fmt::format("; 1.0 in {} layers, accepted", found.missing.size());
  precision.unscaled_accepted = true;
  if (looks_like_cast_recipe(input)) side.scale_source += "; looks like ModelOpt's cast recipe, which means 1.0";
  if (found.all_one) {
    precision.unscaled_layers.push_back(fmt::format("all {} (every scale is 1)", name));
  } else {
    precision.unscaled_layers.insert(precision.unscaled_layers.end(), found.missing.begin(), found.missing.end());
  }
  return {};
}

KvScaleState scale_state(const PrecisionInput& input, const Precision& precision, const KvDecision& decision) {
  const bool scaled = needs_scales(decision.k.type) || needs_scales(decision.v.type);
  if (precision.unscaled_accepted) return KvScaleState::kDefaultedToOne;
  if (scaled) return input.scales.source == "checkpoint" ? KvScaleState::kFromCheckpoint : KvScaleState::kFromFile;
  const bool per_token = decision.k.type == KvType::kFp8E4m3Token || decision.v.type == KvType::kFp8E4m3Token;
  return per_token ? KvScaleState::kPerToken : KvScaleState::kNotApplicable;
}

// What the metadata wished and what became of it.
std::string metadata_note(const PrecisionInput& input, const KvDecision& decision) {
  const MetadataWish& metadata = input.metadata;
  if (!metadata.wish && !metadata.disagree) return {};
  const std::string effective = kv_format_name({decision.k.type, decision.v.type});
  const bool obeyed = metadata.wish && kv_type_name(decision.k.type) == *metadata.wish &&
                      kv_type_name(decision.v.type) == *metadata.wish;
  if (obeyed) return {};
  std::string scales;
  if (input.scales.source == "checkpoint" && input.scales.expected > 0) {
    scales = input.scales.found() == 0
                 ? " and holds no K/V scales (an engine that obeys uses 1.0)"
                 : fmt::format(" and holds {} of {} K/V scales", input.scales.found(), input.scales.expected);
  }
  return fmt::format(
      "KV cache dtype is {} ({}). The checkpoint's metadata wishes {} ({}){}; a wish is shown and not obeyed unless "
      "--kv-cache-dtype checkpoint asks for it",
      effective, decision.k.requested.by_user() ? decision.k.requested.by : "the default",
      metadata.disagree ? "different types in different files" : *metadata.wish, places_text(metadata), scales);
}

}  // namespace

std::string offered_kv_types(const BackendCapabilities& backend) {
  std::string text;
  for (const KvType type : backend.kv_types) text += (text.empty() ? "" : ", ") + std::string(kv_type_name(type));
  return text;
}

Expected<KvDecision> resolve_kv(const PrecisionInput& input, Precision& precision) {
  STERLING_CHECK(input.spec != nullptr);
  auto k = resolve_side(input, input.wishes.kv_k, "--kv-cache-dtype-k");
  if (!k) return k.error();
  auto v = resolve_side(input, input.wishes.kv_v, "--kv-cache-dtype-v");
  if (!v) return v.error();
  KvDecision decision{std::move(*k), std::move(*v)};
  for (KvSide* side : {&decision.k, &decision.v}) {
    side->granularity = side->type == KvType::kFp8E4m3Token ? "token and head" : "-";
    side->scale_source =
        side->type == KvType::kFp8E4m3Token ? "a power of two from the token's own largest value, beside it" : "-";
  }
  if (has_attention(*input.spec)) {
    const bool scaled_k = needs_scales(decision.k.type);
    const bool scaled_v = needs_scales(decision.v.type);
    if (scaled_k) {
      if (Status s = take_scales(input, decision.k, "K", input.scales.scales.k, precision.kv_scales.k, precision); !s)
        return s.error();
    }
    if (scaled_v) {
      if (Status s = take_scales(input, decision.v, "V", input.scales.scales.v, precision.kv_scales.v, precision); !s)
        return s.error();
    }
  }
  precision.kv = {decision.k.type, decision.v.type};
  precision.kv_scale_state = scale_state(input, precision, decision);
  precision.kv_scale_source = needs_scales(decision.k.type) ? decision.k.scale_source : decision.v.scale_source;
  precision.metadata_note = metadata_note(input, decision);
  if (precision.unscaled_accepted) {
    precision.warnings.emplace_back(kUnscaledKvSentence);
    precision.warnings.push_back(
        fmt::format("unscaled FP8 KV was accepted with --accept-unscaled-kv: {}; it stays visible in /v1/precision, "
                    "/ready and /metrics",
                    shortened(precision.unscaled_layers)));
  }
  return decision;
}

}  // namespace sterling::plan
