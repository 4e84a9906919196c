// Weight panels (layout: contract.h) written from and read back into row-major rows. Baseline code, run at load and by the proof.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sterling::kernels {

// Bytes of one panel of 16 output rows with k columns; k is padded to even.
std::size_t panel_bytes_bf16(std::int64_t k);
std::size_t panel_bytes_f32(std::int64_t k);

// Fills one whole panel: row j comes from rows + j * ld (ld in elements), j < row_count <= 16; lanes without a row and the padding of an
// odd k become zero. Values are kept bit for bit (the kernels read subnormals as zero). Panels are independent: pack them in parallel.
void pack_panel_bf16(const std::uint16_t* rows, std::size_t ld, int row_count, int k, void* panel);
void pack_panel_f32(const float* rows, std::size_t ld, int row_count, int k, void* panel);

// Row `lane` (0 … 15) of a panel, k values.
void unpack_panel_row_bf16(const void* panel, int lane, int k, std::uint16_t* row);
void unpack_panel_row_f32(const void* panel, int lane, int k, float* row);

}  // namespace sterling::kernels
