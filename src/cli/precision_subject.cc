#include "cli/precision_subject.h"

#include <algorithm>

#include <fmt/format.h>

#include "formats/kv_scales_file.h"
#include "formats/kv_wish.h"
#include "formats/quantization_config.h"
#include "model/kv_scales.h"

namespace sterling::cli {

plan::MetadataWish metadata_wish(const formats::Checkpoint& checkpoint) {
  const formats::KvWish read = formats::read_kv_wish(checkpoint);
  plan::MetadataWish wish;
  wish.wish = read.wish;
  wish.disagree = read.sources_disagree;
  wish.modelopt = read.modelopt;
  for (const formats::KvWishSource& source : read.sources) {
    wish.places.push_back({fmt::format("{} {}", source.file, source.key), formats::canonical_kv_wish(source.value),
                           boost::json::serialize(source.value)});
  }
  return wish;
}

Expected<plan::ScalesFound> find_scales(const formats::Checkpoint& checkpoint, const ModelSpec& spec,
                                        const std::optional<std::string>& file) {
  if (!file) return model::find_kv_scales(checkpoint, spec);
  auto read = formats::read_kv_scales_file(*file);
  if (!read) return make_error(read.error().code, fmt::format("--kv-scales {}", read.error().message), "--kv-scales");
  auto found = model::kv_scales_from_file(*read, spec);
  if (!found)
    return make_error(found.error().code, fmt::format("--kv-scales {}", found.error().message), "--kv-scales");
  return found;
}

std::vector<plan::StoredWeights> stored_weights(const lab::Inspection& inspection) {
  std::vector<plan::StoredWeights> groups;
  if (!inspection.weights) return groups;
  for (const lab::WeightGroup& group : *inspection.weights) {
    groups.push_back({group.group, group.format, group.tensors.value_or(0), group.bytes});
  }
  return groups;
}

std::optional<std::int64_t> declared_activation_bits(const formats::Checkpoint& checkpoint) {
  const auto config = formats::read_quantization_config(checkpoint.config(), checkpoint.hf_quant_config());
  return config ? config.value().activation_bits : std::nullopt;
}

Expected<plan::Precision> resolve(const PrecisionRequest& request) {
  plan::PrecisionInput input;
  input.spec = request.spec;
  input.metadata = metadata_wish(*request.checkpoint);
  if (request.inspection != nullptr) input.weights = stored_weights(*request.inspection);
  input.declared_activation_bits = declared_activation_bits(*request.checkpoint);
  input.backend = request.backend;
  input.wishes = request.wishes;
  auto scales = find_scales(*request.checkpoint, *request.spec, request.kv_scales_file);
  if (scales) {
    input.scales = *scales;
  } else if (request.kv_scales_file) {
    return scales.error();
  }
  auto precision = plan::resolve_precision(input);
  if (scales) return precision;
  // Nobody needs the broken ones where K and V are kept in a type without scales.
  const bool needed = !precision || plan::needs_scales(precision->kv.k) || plan::needs_scales(precision->kv.v);
  if (needed && (precision || precision.error().code == ErrorCode::kInvalidArgument)) return scales.error();
  return precision;
}

}  // namespace sterling::cli
