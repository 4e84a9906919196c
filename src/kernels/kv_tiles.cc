#include "kernels/kv_tiles.h"

#include <algorithm>
#include <cstring>

namespace sterling::kernels {
namespace {

constexpr std::size_t kSlots = kTileTokens;
constexpr int kPieceDims = 512;  // of a row at a time, on the stack

// Positions in elements. FP32 keeps all even elements of a K pair, then all odd ones; the others keep the two side by side.
constexpr std::size_t k_index(bool fp32, std::size_t d, std::size_t slot) {
  return fp32 ? d * kSlots + slot : (d / 2 * kSlots + slot) * 2 + d % 2;
}
// V: pairs along tokens, per block of 16 dims.
constexpr std::size_t v_index(bool fp32, std::size_t d, std::size_t slot) {
  const std::size_t block = d / kLanes * (kSlots * kLanes);
  return block + (fp32 ? slot * kLanes + d % kLanes : (slot / 2 * kLanes + d % kLanes) * 2 + slot % 2);
}
constexpr std::size_t index_of(KvSide side, bool fp32, std::size_t d, std::size_t slot) {
  return side == KvSide::kK ? k_index(fp32, d, slot) : v_index(fp32, d, slot);
}

// A stored FP8 code has its sign last (contract.h).
constexpr std::uint8_t sign_last(std::uint8_t code) {
  return static_cast<std::uint8_t>(code << 1 | code >> 7);
}
constexpr std::uint8_t sign_first(std::uint8_t code) {
  return static_cast<std::uint8_t>(code >> 1 | code << 7);
}

// dims [first, first + count) of a slot.
template <class Element>
void scatter(KvSide side, void* tile, int slot, const void* elements, int first, int count) {
  auto* const target = static_cast<Element*>(tile);
  const auto* const source = static_cast<const Element*>(elements);
  for (int i = 0; i < count; ++i) {
    Element element = source[i];
    if constexpr (sizeof(Element) == 1) element = sign_last(element);
    target[index_of(side, sizeof(Element) == 4, static_cast<std::size_t>(first + i), static_cast<std::size_t>(slot))] =
        element;
  }
}
template <class Element>
void gather(KvSide side, const void* tile, int slot, void* elements, int count) {
  const auto* const source = static_cast<const Element*>(tile);
  auto* const target = static_cast<Element*>(elements);
  for (int i = 0; i < count; ++i) {
    Element element =
        source[index_of(side, sizeof(Element) == 4, static_cast<std::size_t>(i), static_cast<std::size_t>(slot))];
    if constexpr (sizeof(Element) == 1) element = sign_first(element);
    target[i] = element;
  }
}

std::size_t codes_bytes(KvSide side, KvCode code, int head_dim) {
  const int dims = side == KvSide::kK ? head_dim : (head_dim + kLanes - 1) / kLanes * kLanes;
  return kSlots * static_cast<std::size_t>(dims) * kv_element_bytes(code);
}

bool is_fp8(KvCode code) {
  return kv_element_bytes(code) == 1;
}

}  // namespace

std::size_t kv_tile_bytes(KvSide side, KvCode code, int head_dim) {
  return codes_bytes(side, code, head_dim) + (code == KvCode::kE4m3Token ? kSlots * sizeof(float) : 0);
}
std::size_t k_tile_bytes(KvCode code, int head_dim) {
  return kv_tile_bytes(KvSide::kK, code, head_dim);
}
std::size_t v_tile_bytes(KvCode code, int head_dim) {
  return kv_tile_bytes(KvSide::kV, code, head_dim);
}

void write_kv_row(KvSide side, KvCode code, void* tile, int slot, const float* row, int head_dim, float scale,
                  KvCounts& counts) {
  if (code == KvCode::kE4m3Token) {
    scale = token_scale(row, head_dim);
    std::byte* const scales = static_cast<std::byte*>(tile) + codes_bytes(side, code, head_dim);
    std::memcpy(scales + static_cast<std::size_t>(slot) * sizeof(float), &scale, sizeof scale);
  }
  alignas(64) std::uint32_t elements[kPieceDims];
  for (int first = 0; first < head_dim; first += kPieceDims) {
    const int count = std::min(kPieceDims, head_dim - first);
    encode_kv(code, row + first, count, scale, elements, counts);
    switch (kv_element_bytes(code)) {
      case 1: scatter<std::uint8_t>(side, tile, slot, elements, first, count); break;
      case 2: scatter<std::uint16_t>(side, tile, slot, elements, first, count); break;
      default: scatter<std::uint32_t>(side, tile, slot, elements, first, count);
    }
  }
}

void read_kv_elements(KvSide side, KvCode code, const void* tile, int slot, void* elements, int head_dim) {
  switch (kv_element_bytes(code)) {
    case 1: return gather<std::uint8_t>(side, tile, slot, elements, head_dim);
    case 2: return gather<std::uint16_t>(side, tile, slot, elements, head_dim);
    default: return gather<std::uint32_t>(side, tile, slot, elements, head_dim);
  }
}

float read_kv_scale(KvSide side, KvCode code, const void* tile, int slot, int head_dim, float scale) {
  if (!is_fp8(code)) return 1.0F;
  if (code != KvCode::kE4m3Token) return scale;
  const std::byte* const scales = static_cast<const std::byte*>(tile) + codes_bytes(side, code, head_dim);
  std::memcpy(&scale, scales + static_cast<std::size_t>(slot) * sizeof(float), sizeof scale);
  return scale;
}

void read_kv_row(KvSide side, KvCode code, const void* tile, int slot, float* row, int head_dim, float scale) {
  // Elements are never wider than floats: they lie at the front of the row's own memory until they are decoded, last first.
  const std::size_t element = kv_element_bytes(code);
  alignas(64) std::byte piece[kLanes * sizeof(float)];
  read_kv_elements(side, code, tile, slot, row, head_dim);
  const auto* const stored = reinterpret_cast<const std::byte*>(row);
  for (int first = (head_dim - 1) / kLanes * kLanes; first >= 0; first -= kLanes) {
    const int count = std::min(kLanes, head_dim - first);
    std::memcpy(piece, stored + static_cast<std::size_t>(first) * element, static_cast<std::size_t>(count) * element);
    decode_kv(code, piece, count, row + first);
  }
  if (!is_fp8(code)) return;
  scale = read_kv_scale(side, code, tile, slot, head_dim, scale);
  for (int d = 0; d < head_dim; ++d) row[d] *= scale;
}

void flip_kv_bits(KvSide side, KvCode code, void* tile, int slot, int dim, std::uint32_t mask) {
  const std::size_t bytes = kv_element_bytes(code);
  const std::size_t at =
      index_of(side, bytes == 4, static_cast<std::size_t>(dim), static_cast<std::size_t>(slot)) * bytes;
  if (bytes == 1) mask = sign_last(static_cast<std::uint8_t>(mask));
  std::uint32_t element = 0;
  std::byte* const place = static_cast<std::byte*>(tile) + at;
  std::memcpy(&element, place, bytes);  // little endian, as every machine that this runs on
  element ^= mask;
  std::memcpy(place, &element, bytes);
}

}  // namespace sterling::kernels
