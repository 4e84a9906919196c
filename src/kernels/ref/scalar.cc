// The scalar tier: the canonical arithmetic in plain C, on any CPU. The other tiers are tested against it, bit for bit.
#include "kernels/tiers.h"

namespace sterling::kernels {
namespace {

#include "kernels/ref/vec.inl"
// After vec.inl.
#include "kernels/ref/kv_vec.inl"

constexpr char kTierName[] = "scalar";
constexpr int kRowTile = 2;
constexpr int columns_of(int) {
  return 1;
}
constexpr int tiles_of(int) {
  return 1;
}

#include "kernels/generic/all.inl"

using Bf16 = FmaBf16;

#include "kernels/generic/table.inl"

}  // namespace

const KernelTable* scalar_table() {
  return &kTable;
}

}  // namespace sterling::kernels
