// Weight panels (layout: contract.h) written from and read back into row-major rows. Baseline code, run at load and by the proof.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/contract.h"

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

// Coded panels. A row's codes are as checkpoints store them: E4M3 one byte each, E2M1 two to a byte, the earlier in the low half. A row's
// scales: one FP32 (kFp8Block) or one byte per group, the last group may be short; kFp8 has none (null).
std::size_t panel_bytes_coded(CodeFormat format, std::int64_t k);
// Elements of a group, 0 for kFp8; bytes of one lane's scale of one group; whether codes are E2M1.
int code_group(CodeFormat format);
std::size_t code_scale_bytes(CodeFormat format);
bool is_four_bit(CodeFormat format);

// Row j's codes stand at codes[j], its scales at scales[j] (not looked at for kFp8), j < row_count <= 16. Lanes without a row get zeros.
void pack_panel_coded(CodeFormat format, const std::uint8_t* const* codes, const std::byte* const* scales,
                      int row_count, int k, void* panel);
// The bytes that pack_panel_coded read for a lane, exactly; an unused half of the last byte of an odd E2M1 row is zero.
void unpack_panel_row_coded(CodeFormat format, const void* panel, int lane, int k, std::uint8_t* codes,
                            std::byte* scales);

}  // namespace sterling::kernels
