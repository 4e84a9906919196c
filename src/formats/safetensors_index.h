// model.safetensors.index.json: {"weight_map": {tensor: shard file}, "metadata": {…}}. Pure functions, thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tensor/tensor_view.h"

namespace sterling::formats {

struct SafetensorsIndex {
  struct Entry {
    std::string_view tensor;
    std::uint32_t shard = 0;  // into shards
  };
  std::vector<Entry> entries;       // sorted by tensor, no tensor twice
  std::vector<std::string> shards;  // plain file names, in order of appearance
  std::deque<std::string> escaped;  // owns the few names that had escapes; the others lie in the text
};

// `text` is the file and `file` its name; the result borrows the text. A shard is a plain name "….safetensors": one that
// leads out of the index's folder is refused.
Expected<SafetensorsIndex> parse_safetensors_index(std::string_view text, std::string_view file);

// Joins the shards' tensors (per shard, sorted by name, as parse_safetensors gives them; moved from) into one list sorted by
// name. Index and shards must name exactly the same tensors: one that its shard lacks, or that the index lacks, is an error.
Expected<std::vector<TensorView>> join_shards(const SafetensorsIndex& index, std::string_view file,
                                              std::span<std::vector<TensorView>> shards);

}  // namespace sterling::formats
