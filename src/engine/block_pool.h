// Ids of the executor's KV blocks (and, as a second pool, of its recurrent-state slots): who holds which. No tensors here.
// Reference-counted, so that a later prefix cache can let several sequences hold one block.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace sterling::engine {

class BlockPool {
 public:
  explicit BlockPool(std::int32_t total);

  // A free block with one reference; nullopt when none is left. The id given back last comes first: its memory is the warmest.
  std::optional<std::int32_t> take();
  // One more reference to a held block.
  void share(std::int32_t id);
  // One reference less; the block is free when none is left.
  void release(std::int32_t id);

  std::int32_t total() const { return static_cast<std::int32_t>(references_.size()); }
  std::int32_t free() const { return static_cast<std::int32_t>(free_.size()); }
  std::int32_t used() const { return total() - free(); }
  std::int32_t references(std::int32_t id) const { return references_[static_cast<std::size_t>(id)]; }

 private:
  std::vector<std::int32_t> references_;
  std::vector<std::int32_t> free_;  // a stack
};

}  // namespace sterling::engine
