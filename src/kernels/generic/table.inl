// Fills a tier's table. The tier defines Bf16 (its product type for BF16 weights) and FmaF32 serves FP32 ones.

#include "kernels/generic/coded.inl"
#include "kernels/generic/attention_kv.inl"

void pack_x_bf16(const float* x, size_t ldx, int m, int k, int row_begin, int row_end, void* packed) {
  pack_x<Bf16>(x, ldx, m, k, row_begin, row_end, true, packed);
}

void pack_x_f32(const float* x, size_t ldx, int m, int k, int row_begin, int row_end, bool round_to_bf16, void* packed) {
  pack_x<FmaF32>(x, ldx, m, k, row_begin, row_end, round_to_bf16, packed);
}

constexpr KernelTable kTable = {
    kTierName,
    kRowTile,
    packed_x_bytes<Bf16>,
    pack_x_bf16,
    gemm<Bf16>,
    packed_x_bytes<FmaF32>,
    pack_x_f32,
    gemm<FmaF32>,
    gemm_f32_wide,
    {gemm_coded<Fp8>, gemm_coded<Fp8Block>, gemm_coded<Nvfp4>, gemm_coded<Mxfp4>, gemm_coded<Mxfp8>},
    attention_scratch_bytes,
    attention_span,
    attention_merge,
    gdn,
    conv_silu,
    rms_norm,
    rms_norm_gated,
    l2_norm,
    rope,
    silu_mul,
    sigmoid_mul,
    add,
    scale_add,
    gdn_gates,
    exp_array,
    log_array,
};
