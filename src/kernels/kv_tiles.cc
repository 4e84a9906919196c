#include "kernels/kv_tiles.h"

#include <cstdint>

#include "base/float_types.h"
#include "kernels/contract.h"

namespace sterling::kernels {
namespace {

constexpr std::size_t kSlots = kTileTokens;

// Positions in elements. BF16 keeps the two elements of a K pair side by side, FP32 keeps all even ones, then all odd ones.
constexpr std::size_t k_index_bf16(std::size_t d, std::size_t slot) {
  return (d / 2 * kSlots + slot) * 2 + d % 2;
}
constexpr std::size_t k_index_f32(std::size_t d, std::size_t slot) {
  return d * kSlots + slot;
}
// V: pairs along tokens, per block of 16 dims.
constexpr std::size_t v_index_bf16(std::size_t d, std::size_t slot) {
  return d / kLanes * (kSlots * kLanes) + (slot / 2 * kLanes + d % kLanes) * 2 + slot % 2;
}
constexpr std::size_t v_index_f32(std::size_t d, std::size_t slot) {
  return d / kLanes * (kSlots * kLanes) + slot * kLanes + d % kLanes;
}

std::uint16_t store_bf16(float value) {
  const std::uint16_t bits = to_bf16(value).bits;
  // By the value before rounding: what FP32 calls subnormal is flushed even where rounding would lift it to the smallest normal.
  const std::uint32_t exact = std::bit_cast<std::uint32_t>(value);
  return (exact & 0x7f800000u) == 0 ? static_cast<std::uint16_t>((exact >> 16) & 0x8000u) : bits;
}

template <auto kIndex>
void write_bf16(void* tile, int slot, const float* row, int head_dim) {
  auto* const target = static_cast<std::uint16_t*>(tile);
  for (std::size_t d = 0; d < static_cast<std::size_t>(head_dim); ++d) {
    target[kIndex(d, static_cast<std::size_t>(slot))] = store_bf16(row[d]);
  }
}
template <auto kIndex>
void read_bf16(const void* tile, int slot, float* row, int head_dim) {
  const auto* const source = static_cast<const std::uint16_t*>(tile);
  for (std::size_t d = 0; d < static_cast<std::size_t>(head_dim); ++d) {
    row[d] = to_float(bf16{source[kIndex(d, static_cast<std::size_t>(slot))]});
  }
}
template <auto kIndex>
void write_f32(void* tile, int slot, const float* row, int head_dim) {
  auto* const target = static_cast<float*>(tile);
  for (std::size_t d = 0; d < static_cast<std::size_t>(head_dim); ++d)
    target[kIndex(d, static_cast<std::size_t>(slot))] = row[d];
}
template <auto kIndex>
void read_f32(const void* tile, int slot, float* row, int head_dim) {
  const auto* const source = static_cast<const float*>(tile);
  for (std::size_t d = 0; d < static_cast<std::size_t>(head_dim); ++d)
    row[d] = source[kIndex(d, static_cast<std::size_t>(slot))];
}

}  // namespace

std::size_t k_tile_bytes(int head_dim, int element_bytes) {
  return kSlots * static_cast<std::size_t>(head_dim * element_bytes);
}
std::size_t v_tile_bytes(int head_dim, int element_bytes) {
  return kSlots * static_cast<std::size_t>((head_dim + kLanes - 1) / kLanes * kLanes * element_bytes);
}

void write_k_bf16(void* tile, int slot, const float* row, int head_dim) {
  write_bf16<k_index_bf16>(tile, slot, row, head_dim);
}
void write_v_bf16(void* tile, int slot, const float* row, int head_dim) {
  write_bf16<v_index_bf16>(tile, slot, row, head_dim);
}
void write_k_f32(void* tile, int slot, const float* row, int head_dim) {
  write_f32<k_index_f32>(tile, slot, row, head_dim);
}
void write_v_f32(void* tile, int slot, const float* row, int head_dim) {
  write_f32<v_index_f32>(tile, slot, row, head_dim);
}

void read_k_bf16(const void* tile, int slot, float* row, int head_dim) {
  read_bf16<k_index_bf16>(tile, slot, row, head_dim);
}
void read_v_bf16(const void* tile, int slot, float* row, int head_dim) {
  read_bf16<v_index_bf16>(tile, slot, row, head_dim);
}
void read_k_f32(const void* tile, int slot, float* row, int head_dim) {
  read_f32<k_index_f32>(tile, slot, row, head_dim);
}
void read_v_f32(const void* tile, int slot, float* row, int head_dim) {
  read_f32<v_index_f32>(tile, slot, row, head_dim);
}

}  // namespace sterling::kernels
