#include "engine/block_pool.h"

#include "base/check.h"

namespace sterling::engine {

BlockPool::BlockPool(std::int32_t total) {
  STERLING_CHECK(total >= 0);
  references_.assign(static_cast<std::size_t>(total), 0);
  free_.reserve(references_.size());
  for (std::int32_t id = total - 1; id >= 0; --id) free_.push_back(id);
}

std::optional<std::int32_t> BlockPool::take() {
  if (free_.empty()) return std::nullopt;
  const std::int32_t id = free_.back();
  free_.pop_back();
  references_[static_cast<std::size_t>(id)] = 1;
  return id;
}

void BlockPool::share(std::int32_t id) {
  STERLING_CHECK(id >= 0 && id < total() && references(id) > 0);
  ++references_[static_cast<std::size_t>(id)];
}

void BlockPool::release(std::int32_t id) {
  STERLING_CHECK(id >= 0 && id < total() && references(id) > 0);
  if (--references_[static_cast<std::size_t>(id)] == 0) free_.push_back(id);
}

}  // namespace sterling::engine
