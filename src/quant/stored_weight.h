// A weight matrix as a checkpoint stores it: codes, and the scales that make them numbers. Weights of quantised checkpoints are made of
// several tensors; this is the one description that loading, checking and decoding share. Pure functions, thread-safe.
//
//   format        codes (stored)            scale                                     meaning of element [r, c]
//   kPlain        [rows, cols], any type    -                                         the value itself (quant/decode.h)
//                 that carries its own scales
//   kFp8Tensor    [rows, cols] F8_E4M3      one value, floating point                 code * scale
//   kFp8Channel   [rows, cols] F8_E4M3      [rows] or [rows, 1]                       code * scale[r]
//   kFp8Block     [rows, cols] F8_E4M3      [ceil(rows / block_rows),                 code * scale[r / block_rows, c / block_cols]
//                                            ceil(cols / block_cols)]
//   kNvfp4        [rows, cols / 2] U8       F8_E4M3 [rows, cols / 16]                 code * scale[r, c / 16] * global, or / global
//   kMxfp4        [rows, cols / 2] U8       E8M0 (U8 or F8_E8M0) [rows, cols / 32]    code * 2^(scale[r, c / 32] - 127)
//   kMxfp8        [rows, cols] F8_E4M3      E8M0 [rows, cols / 32]                    code * 2^(scale[r, c / 32] - 127)
//
// Four-bit codes are E2M1, element 2i in the low half of byte i. Sources: NVIDIA Model-Optimizer nvfp4_tensor.py (global multiplies),
// compressed-tensors nvfp4 compressor (global divides), OCP Microscaling Formats 1.0, the FP8 layout of DeepSeek-V3 and Qwen3 checkpoints
// (weight_scale_inv multiplies, despite its name).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tensor/tensor_view.h"

namespace sterling::quant {

enum class WeightFormat { kPlain, kFp8Tensor, kFp8Channel, kFp8Block, kNvfp4, kMxfp4, kMxfp8 };

// "nvfp4", "fp8_e4m3_block", …; of a plain weight its type in lower case.
std::string_view weight_format_name(WeightFormat format);

// Elements along a row that share a scale: 16 (NVFP4), 32 (MX); 0 for the others.
std::int64_t scale_group(WeightFormat format);

struct StoredWeight {
  WeightFormat format = WeightFormat::kPlain;
  TensorView codes;
  std::optional<TensorView> scale;
  std::optional<TensorView> global_scale;  // kNvfp4: one FP32 value
  bool divide_by_global = false;           // compressed-tensors' layout
  std::int64_t block_rows = 0;             // kFp8Block
  std::int64_t block_cols = 0;
  // Of the activations that engines with quantised activations multiply by; products here don't use it, `sterling audit` does.
  std::optional<TensorView> input_scale = std::nullopt;
  bool divide_by_input = false;  // compressed-tensors' layout

  std::int64_t rows() const;
  std::int64_t cols() const;
  std::int64_t stored_bytes() const;  // of codes and scales
};

// A plain weight.
StoredWeight plain_weight(const TensorView& weight);

// Types and shapes of codes and scales, and the values of scales that stand alone (one per tensor): finite and greater than 0. Does not
// read scales of rows, blocks or groups. kCorrupt or kUnsupported name the tensor.
Status check(const StoredWeight& weight);

// The scales that multiply finished sums, in FP32. `row`: one value (a scale per tensor; NVFP4's global scale as a multiplier, so 1 / global where
// the layout divides) or `rows` values (kFp8Channel); empty for formats without. `block`: kFp8Block's scales, row-major. Every value is finite and not
// negative. The scale codes of groups (NVFP4, MX) are judged by check_group_scales.
struct WeightScales {
  std::vector<float> row;
  std::vector<float> block;
};
Expected<WeightScales> read_scales(const StoredWeight& weight);

// Scale codes of rows [begin, end): no NaN, none negative. kCorrupt names tensor and element.
Status check_group_scales(const StoredWeight& weight, std::int64_t begin, std::int64_t end);

// Codes of rows [begin, end) that are NaN: kCorrupt names the element. Formats without NaN codes pass.
Status check_codes(const StoredWeight& weight, std::int64_t begin, std::int64_t end);

// The reference meaning of every format: rows as FP32. Each element is formed exactly (or, where two scales multiply, in double) and
// rounded to FP32 once. Reads the scales once; the StoredWeight must outlive it. Thread-safe.
class RowDecoder {
 public:
  // Errors of read_scales().
  static Expected<RowDecoder> make(const StoredWeight& weight);
  // Rows [begin, end), row-major. Errors as decode_rows of quant/decode.h.
  Status decode(std::int64_t begin, std::int64_t end, float* out) const;

 private:
  explicit RowDecoder(const StoredWeight& weight) : weight_(&weight) {}
  double scale_of(std::int64_t row, std::int64_t column) const;

  const StoredWeight* weight_;
  WeightScales scales_;
  double global_ = 1.0;
};

Status decode_rows(const StoredWeight& weight, std::int64_t begin, std::int64_t end, float* out);

}  // namespace sterling::quant
