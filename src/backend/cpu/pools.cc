#include "backend/cpu/pools.h"

#include <cstring>
#include <utility>

namespace sterling::backend {

Expected<KvPool> KvPool::allocate(const ModelSpec& spec, plan::KvFormat format, std::int32_t blocks) {
  KvPool pool;
  pool.blocks_ = blocks;
  pool.k_tile_bytes_ = plan::k_tile_bytes(spec, format.k);
  pool.v_tile_bytes_ = plan::v_tile_bytes(spec, format.v);
  pool.block_bytes_ = plan::kv_block_layer_bytes(spec, format);
  pool.layer_bytes_ = pool.block_bytes_ * blocks;
  auto buffer = platform::AlignedBuffer::allocate(
      static_cast<std::size_t>(pool.layer_bytes_ * spec.count(LayerKind::kFullAttention)), "KV pool");
  if (!buffer) return buffer.error();
  pool.buffer_ = std::move(*buffer);
  return pool;
}

Expected<StatePool> StatePool::allocate(const ModelSpec& spec, std::int32_t slots) {
  StatePool pool;
  if (!spec.gdn) return pool;
  const GdnSpec& gdn = *spec.gdn;
  pool.layers_ = spec.count(LayerKind::kLinearAttention);
  pool.slots_ = slots;
  pool.value_heads_ = gdn.value_heads;
  pool.row_stride_ = plan::state_row_stride(gdn);
  pool.head_floats_ = std::int64_t{gdn.key_dim} * pool.row_stride_;
  pool.window_floats_ = std::int64_t{gdn.conv_kernel - 1} * gdn.conv_channels();
  const std::int64_t count = std::int64_t{pool.layers_} * slots;
  auto states = platform::AlignedBuffer::allocate(
      static_cast<std::size_t>(count * pool.value_heads_ * pool.head_floats_ * 4), "recurrent state pool");
  if (!states) return states.error();
  auto windows = platform::AlignedBuffer::allocate(static_cast<std::size_t>(count * pool.window_floats_ * 4),
                                                   "convolution window pool");
  if (!windows) return windows.error();
  pool.states_ = std::move(*states);
  pool.windows_ = std::move(*windows);
  return pool;
}

void StatePool::clear(std::int32_t slot) {
  for (std::int32_t layer = 0; layer < layers_; ++layer) {
    std::memset(state(layer, slot, 0), 0, static_cast<std::size_t>(value_heads_ * head_floats_) * 4);
    std::memset(window(layer, slot), 0, static_cast<std::size_t>(window_floats_) * 4);
  }
}

}  // namespace sterling::backend
