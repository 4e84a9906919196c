// The memory of sequences: KV tiles in blocks of kBlockTokens tokens, and recurrent state in slots. Owned here, addressed by
// block and slot ids that the engine hands out. Zero at start; a tile's unused slots are zero or finite, which the attention kernels rely on.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "plan/memory.h"
#include "platform/aligned_buffer.h"
#include "spec/model_spec.h"

namespace sterling::backend {

// [layer][block][kv_head]{K tile, V tile} (kernels/contract.h has the tiles).
class KvPool {
 public:
  static Expected<KvPool> allocate(const ModelSpec& spec, plan::KvFormat format, std::int32_t blocks);

  std::byte* k_tile(std::int32_t layer, std::int32_t block, std::int32_t kv_head) {
    return buffer_.data() + layer * layer_bytes_ + block * block_bytes_ + kv_head * (k_tile_bytes_ + v_tile_bytes_);
  }
  std::byte* v_tile(std::int32_t layer, std::int32_t block, std::int32_t kv_head) {
    return k_tile(layer, block, kv_head) + k_tile_bytes_;
  }
  const std::byte* k_tile(std::int32_t layer, std::int32_t block, std::int32_t kv_head) const {
    return const_cast<KvPool*>(this)->k_tile(layer, block, kv_head);
  }
  const std::byte* v_tile(std::int32_t layer, std::int32_t block, std::int32_t kv_head) const {
    return const_cast<KvPool*>(this)->v_tile(layer, block, kv_head);
  }
  std::int32_t blocks() const { return blocks_; }
  std::int64_t bytes() const { return static_cast<std::int64_t>(buffer_.size()); }

 private:
  platform::AlignedBuffer buffer_;
  std::int64_t layer_bytes_ = 0;
  std::int64_t block_bytes_ = 0;
  std::int64_t k_tile_bytes_ = 0;
  std::int64_t v_tile_bytes_ = 0;
  std::int32_t blocks_ = 0;
};

// Gated DeltaNet: FP32 state [layer][slot][value_head][key_dim][row_stride] and window [layer][slot][kernel - 1][channels].
class StatePool {
 public:
  static Expected<StatePool> allocate(const ModelSpec& spec, std::int32_t slots);

  float* state(std::int32_t layer, std::int32_t slot, std::int32_t value_head) {
    return states_.as<float>().data() +
           ((std::int64_t{layer} * slots_ + slot) * value_heads_ + value_head) * head_floats_;
  }
  float* window(std::int32_t layer, std::int32_t slot) {
    return windows_.as<float>().data() + (std::int64_t{layer} * slots_ + slot) * window_floats_;
  }
  const float* state(std::int32_t layer, std::int32_t slot, std::int32_t value_head) const {
    return const_cast<StatePool*>(this)->state(layer, slot, value_head);
  }
  const float* window(std::int32_t layer, std::int32_t slot) const {
    return const_cast<StatePool*>(this)->window(layer, slot);
  }
  void clear(std::int32_t slot);
  std::int32_t slots() const { return slots_; }
  std::int64_t bytes() const { return static_cast<std::int64_t>(states_.size() + windows_.size()); }
  std::int32_t row_stride() const { return row_stride_; }

 private:
  platform::AlignedBuffer states_;
  platform::AlignedBuffer windows_;
  std::int32_t layers_ = 0;
  std::int32_t slots_ = 0;
  std::int32_t value_heads_ = 0;
  std::int32_t row_stride_ = 0;
  std::int64_t head_floats_ = 0;
  std::int64_t window_floats_ = 0;
};

}  // namespace sterling::backend
