// Writes a checkpoint's weights: tensors of known names, types and shapes, whose bytes come piece by piece, to one file or to shards with an index. Memory stays
// at what the caller hands in at a time.
//
// Files carry a temporary name until finish(): then every shard is on disk (fsync), gets its name, and the index is written last. A writer that is
// destroyed before takes away all that it wrote. Layout as published files have it: within a shard by element size, largest first, then by name; the header in that order
// and padded with spaces to 8 bytes; "__metadata__": {"format": "pt"} in front. The same plan and bytes give the same files. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tensor/dtype.h"

namespace sterling::formats {

struct PlannedTensor {
  std::string name;
  DType dtype = DType::kBF16;
  std::vector<std::int64_t> shape;
};

class SafetensorsWriter {
 public:
  struct Options {
    std::int64_t shard_bytes = std::int64_t{5} << 30;  // a tensor that is larger gets a shard of its own
  };

  // Plans the shards: tensors go to them in the order given, so bytes that come in that order keep one file open. Nothing is written yet.
  // `folder` exists. kInvalidArgument: a name twice, a block type, a size that does not fit.
  static Expected<std::unique_ptr<SafetensorsWriter>> create(std::filesystem::path folder,
                                                             std::vector<PlannedTensor> tensors,
                                                             const Options& options);
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // Bytes on disk when finished, headers and index included.
  std::int64_t total_bytes() const;
  std::size_t shard_count() const;

  // The next bytes of tensor `index` (of the list given to create()). Tensors may be filled in any order.
  Status append(std::size_t index, std::span<const std::byte> bytes);

  // kInternal when a tensor is not full. After success the files stay.
  Status finish();
  // Takes everything away again, also after finish().
  void discard();
  // Names of the files written, without folder; the index last. After finish().
  const std::vector<std::string>& files() const;

 private:
  struct State;
  explicit SafetensorsWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Writes a small file through a temporary neighbour, brings it to disk and renames it.
Status write_file(const std::filesystem::path& path, std::string_view text);

}  // namespace sterling::formats
