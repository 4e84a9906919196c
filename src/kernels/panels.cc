#include "kernels/panels.h"

#include <cstring>

#include "kernels/contract.h"

namespace sterling::kernels {
namespace {

// Where element i of a lane stands in a panel, in elements.
constexpr std::size_t index_bf16(std::size_t i, std::size_t lane) {
  return (i / 2 * kLanes + lane) * 2 + i % 2;
}
constexpr std::size_t index_f32(std::size_t i, std::size_t lane) {
  return i * kLanes + lane;
}

template <class T, auto kIndex>
void pack(const T* rows, std::size_t ld, int row_count, int k, void* panel) {
  T* const target = static_cast<T*>(panel);
  const auto columns = static_cast<std::size_t>(k);
  const auto filled = static_cast<std::size_t>(row_count);
  const std::size_t padded = (columns + 1) / 2 * 2;
  // 64 columns at a time: the rows' lines and the panel's stay in the first-level cache.
  constexpr std::size_t kColumns = 64;
  for (std::size_t begin = 0; begin < padded; begin += kColumns) {
    const std::size_t end = begin + kColumns < padded ? begin + kColumns : padded;
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      for (std::size_t i = begin; i < end; ++i) {
        target[kIndex(i, lane)] = lane < filled && i < columns ? rows[lane * ld + i] : T{};
      }
    }
  }
}

template <class T, auto kIndex>
void unpack(const void* panel, int lane, int k, T* row) {
  const T* const source = static_cast<const T*>(panel);
  for (std::size_t i = 0; i < static_cast<std::size_t>(k); ++i)
    row[i] = source[kIndex(i, static_cast<std::size_t>(lane))];
}

}  // namespace

std::size_t panel_bytes_bf16(std::int64_t k) {
  return static_cast<std::size_t>((k + 1) / 2) * 2 * kLanes * sizeof(std::uint16_t);
}
std::size_t panel_bytes_f32(std::int64_t k) {
  return static_cast<std::size_t>((k + 1) / 2) * 2 * kLanes * sizeof(float);
}

void pack_panel_bf16(const std::uint16_t* rows, std::size_t ld, int row_count, int k, void* panel) {
  pack<std::uint16_t, index_bf16>(rows, ld, row_count, k, panel);
}
void pack_panel_f32(const float* rows, std::size_t ld, int row_count, int k, void* panel) {
  pack<float, index_f32>(rows, ld, row_count, k, panel);
}

void unpack_panel_row_bf16(const void* panel, int lane, int k, std::uint16_t* row) {
  unpack<std::uint16_t, index_bf16>(panel, lane, k, row);
}
void unpack_panel_row_f32(const void* panel, int lane, int k, float* row) {
  unpack<float, index_f32>(panel, lane, k, row);
}

}  // namespace sterling::kernels
