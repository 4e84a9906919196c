#include "lab/synth_vision.h"

#include <string>
#include <utility>

#include <fmt/format.h>

#include "formats/object_reader.h"

namespace sterling::lab {

using Wanted = model::WeightBinder::Wanted;

Expected<std::vector<Wanted>> vision_tensors(const boost::json::object& config, std::string_view config_file) {
  std::vector<Wanted> out;
  const formats::ObjectReader root(config, config_file);
  if (!root.has("vision_config")) return out;
  const formats::ObjectReader vision = root.object("vision_config");
  constexpr std::int64_t kMost = 1 << 20;
  const std::int64_t depth = vision.integer("depth", 1, 1024);
  const std::int64_t hidden = vision.integer("hidden_size", 1, kMost);
  const std::int64_t inner = vision.integer("intermediate_size", 1, kMost);
  const std::int64_t width = vision.integer("out_hidden_size", 1, kMost);
  const std::int64_t channels = vision.integer_or("in_channels", 3, 1, 64);
  const std::int64_t patch = vision.integer_or("patch_size", 16, 1, 1024);
  const std::int64_t frames = vision.integer_or("temporal_patch_size", 2, 1, 64);
  const std::int64_t merge = vision.integer_or("spatial_merge_size", 2, 1, 64);
  const std::int64_t positions = vision.integer_or("num_position_embeddings", 2304, 1, kMost);
  if (Status status = root.status(); !status) return status.error();

  const auto add = [&](const std::string& module, std::vector<std::int64_t> shape, bool bias = true) {
    const std::int64_t rows = shape.front();
    const auto kind = shape.size() == 2 ? Wanted::Kind::kMatrix : Wanted::Kind::kVector;
    out.push_back({"model.visual." + module + ".weight", std::move(shape), kind});
    if (bias) out.push_back({"model.visual." + module + ".bias", {rows}, Wanted::Kind::kVector});
  };
  add("patch_embed.proj", {hidden, channels, frames, patch, patch});
  add("pos_embed", {positions, hidden}, false);
  for (std::int64_t i = 0; i < depth; ++i) {
    const std::string block = fmt::format("blocks.{}.", i);
    add(block + "norm1", {hidden});
    add(block + "norm2", {hidden});
    add(block + "attn.qkv", {3 * hidden, hidden});
    add(block + "attn.proj", {hidden, hidden});
    add(block + "mlp.linear_fc1", {inner, hidden});
    add(block + "mlp.linear_fc2", {hidden, inner});
  }
  const std::int64_t merged = hidden * merge * merge;
  add("merger.norm", {hidden});
  add("merger.linear_fc1", {merged, merged});
  add("merger.linear_fc2", {width, merged});
  return out;
}

}  // namespace sterling::lab
