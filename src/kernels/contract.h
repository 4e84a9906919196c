// The kernel contract: what every ISA tier computes, to the bit.
//
// A tier is one translation unit with its own compiler flags that exports one KernelTable. All tiers give *equal bits* for
// equal input, whatever the row count, the split over threads or the tile shape, because the contract fixes the order of
// every rounding. docs/numerics.md explains why; the scalar tier (ref/) is the definition in code.
//
// Rules for every function here
//  * FTZ and DAZ are set on the calling thread (platform/thread_pool.h does that): subnormal inputs count as zero, subnormal
//    results become zero with their sign. Rounding is to nearest even.
//  * fma(a, b, c) rounds once. Where a formula below shows separate operators, each rounds.
//  * "lane sum" of n values: 16 running sums, sum[j] takes the elements j, j + 16, … in ascending order, starting from +0; then
//    sum[j] += sum[j + 8] for j < 8, then j + 4, j + 2, j + 1. A lane sum of products uses fma(a, b, sum[j]).
//  * exp, log, silu, sigmoid, softplus are this project's own (generic/math.inl); errors bounded in kernels/math_test.cc. Division and
//    square root are the IEEE operations.
//  * Nothing here allocates, throws, logs or keeps state. Pointers may be unaligned unless stated.
//  * NaN and infinity propagate as IEEE arithmetic does; nothing is checked.
//
// Only C headers here: a C++ library header in an ISA unit would emit inline functions compiled for that ISA into the program.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace sterling::kernels {

// Output rows of a weight panel; tokens of a K tile; dims of a V tile column.
constexpr int kLanes = 16;

// ---- matrix products -------------------------------------------------------------------------------------------------
// y[m][n] = sum over k of x[m][k] * w[n][k], in the canonical arithmetic: acc starts at +0 (or at the stored partial) and for
// each pair i of K, ascending:
//     acc = fma(x[2i], w[2i], fma(x[2i + 1], w[2i + 1], acc))          -- odd element first
// K is padded to even with zeros.
//
// FP32 weights: K is cut into runs of 16 elements from 0 (the last may be shorter). Each run is such a chain from +0, and the runs are
// added to a total in ascending order, total from +0: total = total + run. Rounding errors then grow with 16 + K / 16 instead of K. The
// FP32 form of attention does the same, along head_dim and along tokens. gemm_f32_wide has its own rule, below.
//
// Weight panels. Panel p holds output rows 16p … 16p + 15; rows beyond N are zero. K pairs are interleaved:
//   BF16: panel[i][lane][2] as 16-bit values, i = pair index;  bytes per panel = pairs * 64
//   FP32: panel[i][2][lane] as floats (all even elements of the pair, then all odd ones);  bytes per panel = pairs * 128
// Panels follow each other without gaps and start 64-byte aligned.
//
// Coded weights are kept as a checkpoint's codes and decoded inside the product, exactly: E4M3 and E2M1 values are BF16 values. With
// "group" = a run of K that shares a scale, and "scale" its FP32 value (exact from E4M3 and E8M0; E8M0 code 0, 2^-127, counts as zero):
//   no groups:  y = the one chain over all of K, as for BF16 weights
//   groups:     part = the chain over the group alone, from +0;  total = fma(part, scale, total), groups ascending, total from +0;  y = total
// NaN codes never arrive (E4M3 0x7F and 0xFF, E8M0 0xFF): the loader rejects them.
//
//   format     codes  group  scale of a lane and group
//   kFp8       E4M3   none   -                              row_scale carries the scale of the tensor or the channel
//   kFp8Block  E4M3   128    FP32
//   kNvfp4     E2M1   16     E4M3, one byte                 row_scale carries the global scale
//   kMxfp4     E2M1   32     E8M0, one byte
//   kMxfp8     E4M3   32     E8M0, one byte
//
// A panel is group after group: first the scales of its 16 lanes (kFp8: none), then its codes in blocks of 4 K pairs:
//   E4M3: two lines of [lane] 32-bit words, little endian: in line j the low bytes of the 16-bit halves are pair 2j, the high bytes pair
//         2j + 1; the low half is the even element;  128 bytes. Behind the last group, padded to 64 bytes: a bit per line, lowest first,
//         set if a code of the line has exponent 0; the others decode by shifting alone
//   E2M1: block[lane] 32-bit words, little endian: bits 4i … 4i + 3 the even element of pair i, bits 16 + 4i … the odd one;  64 bytes
// The last group may be short; its last block is filled up with codes of zero, over which nothing is summed.
enum class CodeFormat { kFp8, kFp8Block, kNvfp4, kMxfp4, kMxfp8 };
constexpr int kCodeFormats = 5;

// Activations are packed once per matrix product into a layout private to the tier (row tiles with pairs interleaved), so that
// all weight panels read them sequentially.
struct GemmArgs {
  const void* x;  // packed by the same tier's pack_x_*
  const void* w;  // first panel of the matrix
  float* out;     // out[row * ldo + n]
  size_t ldo;     // in floats
  int m;          // rows in x
  int k;          // elements along K
  int n;          // outputs; the last panel writes only n % 16 lanes if that is not 0
  int row_begin;  // rows to compute: row_begin is a multiple of row_tile, row_end too or equal to m
  int row_end;
  int panel_begin;  // panels to compute
  int panel_end;
  const float* row_scale;  // [n] or null: the finished sum is multiplied by it, before the bias
  const float* bias;       // [n] or null: added once to that
  bool add;                // true: out += result (one rounding after the bias), false: out = result
};

// ---- attention -------------------------------------------------------------------------------------------------------
// One KV head, one span of the key sequence. Spans start at fixed positions (multiples of kSpanTokens), so a row's partial
// results never depend on who else is in the batch.
constexpr int kTileTokens = 16;
constexpr int kSpanTokens = 512;

// What a tile stores. Any K may stand beside any V.
//   kBf16, kFp32    the values
//   kE4m3, kE5m2    FP8 codes, each rotated left by one bit, so that its sign is last (decoding is shorter); one scale for all
//   kE4m3Token      E4M3 codes, and behind the codes of a tile 16 floats: its tokens' scales, powers of two
enum class KvCode { kBf16, kFp32, kE4m3, kE5m2, kE4m3Token };
constexpr KvCode kKvCodes[] = {KvCode::kBf16, KvCode::kFp32, KvCode::kE4m3, KvCode::kE5m2, KvCode::kE4m3Token};

// Tiles. A K tile holds 16 tokens of one KV head as a weight panel: BF16 [head_dim / 2][16 tokens][2], FP32
// [head_dim / 2][2][16 tokens]. A V tile holds the same 16 tokens as weight panels over dims: for each block of 16 dims, pairs along
// tokens: BF16 [ceil(head_dim / 16)][8 pairs][16 dims][2], FP32 [ceil(head_dim / 16)][8 pairs][2][16 dims]. FP8 codes lie as BF16 values do, a
// byte each. head_dim is even. Slots without a token are zero; dims beyond head_dim are zero.
//
// Products over K and over V are each in one of two forms. The BF16 form is the product with BF16 weights: FP8 values are BF16 values, all
// of them. The FP32 form is the one with FP32 weights, codes and BF16 values widened. FP32 form: where `wide`, and over FP32 tiles.
//
// For row r with visible[r] > 0 keys of this span, K and V being the stored values without their scales:
//   s[j] = (canonical product of q[r] and key j over head_dim) * scale                    j < visible[r];  kE4m3Token: * (scale * scale[j])
//   max = largest s[j], a zero as +0;  p[j] = exp(s[j] - max), rounded to BF16 unless wide;  sum = lane sum of p (as rounded)
//   out[d] = (canonical product of p and V[:, d] over tokens, pairs from the span's first token) * v_scale + 0
//            kE4m3Token: p[j] * scale[j] for p[j] here, which is exact or flushed
// Masked keys have p = +0, so a kernel may pass over any number of them: p * V leaves the sum unless it is a zero, whose sign the last
// addition clears. V slots that no row sees must be finite for that. Rows with visible[r] <= 0 get max = -infinity, sum = 0, out = 0.
// A NaN score makes sum and out NaN; max is then unspecified.
struct AttentionSpanArgs {
  // Packed by pack_x_bf16, FP32 form over K: by pack_x_f32, rounded to BF16 unless wide (m rows, k = head_dim).
  const void* q;
  const void* const* k_tiles;  // [tiles] addresses of this head's tiles
  const void* const* v_tiles;  // [tiles]
  int tiles;                   // 1 … kSpanTokens / kTileTokens
  int m;                       // query rows
  int head_dim;
  float scale;    // of scores: the model's times K's
  float v_scale;  // of V
  KvCode k_code;
  KvCode v_code;
  bool wide;               // nothing is rounded to BF16
  const int32_t* visible;  // [m] keys of the span that row r may see
  float* max;              // [m]
  float* sum;              // [m]
  float* out;              // [m][head_dim]
  void* scratch;           // attention_scratch_bytes, 64-byte aligned
};

// Merges the spans of one row in ascending order, in FP32, starting from max = -inf, sum = 0, out = 0:
//   new_max = max(max, max_s);  a = exp(max - new_max);  b = exp(max_s - new_max)      (exp(-inf) = 0; a span with sum 0 is skipped)
//   sum = fma(sum, a, sum_s * b);  out[d] = fma(out[d], a, out_s[d] * b);  and at the end out[d] = out[d] / sum.
struct AttentionMergeArgs {
  const float* max;  // [spans][m]
  const float* sum;  // [spans][m]
  const float* out;  // [spans][m][head_dim]
  int spans;
  int m;
  int head_dim;
  float* result;  // row r at result + r * ld
  size_t ld;
};

// ---- Gated DeltaNet --------------------------------------------------------------------------------------------------
// The token-by-token delta rule of one value head (Yang et al., "Gated Delta Networks", and HF modeling_qwen3_next.py,
// torch_recurrent_gated_delta_rule), FP32. For each token t, with S of [key_dim][value_dim]:
//   S[i][j] = S[i][j] * decay[t]
//   r[j]    = quad sum over i of k[t][i] * S[i][j];   p[j] = the same with q[t][i]
//   d[j]    = (v[t][j] - r[j]) * beta[t]
//   o[t][j] = fma(lane sum over i of q[t][i] * k[t][i], d[j], p[j])
//   S[i][j] = fma(k[t][i], d[j], S[i][j])
// o is q against the updated state, q·(S + k d), written so that the token's own part is one number times d. Reading it out of the rounded
// state instead gives every column a rounding of its own where q·k nearly cancels, and the output norm blows those up; a common factor it
// divides away. Costs nothing: both reads share one pass.
// "quad sum": four chains, chain c takes i = c, c + 4, … ascending with fma from +0; result (c0 + c1) + (c2 + c3).
// A tier may fuse the update of token t with the read of t + 1 and block over columns: the roundings are the same.
struct GdnArgs {
  const float* q;
  size_t ldq;  // token t at q + t * ldq, [key_dim], normalised and scaled
  const float* k;
  size_t ldk;  // [key_dim], normalised
  const float* v;
  size_t ldv;  // [value_dim]
  const float* decay;
  size_t ld_decay;  // decay[t * ld_decay], in [0, 1]
  const float* beta;
  size_t ld_beta;
  float* state;         // [key_dim][value_stride], updated in place
  size_t value_stride;  // floats between rows of the state; a multiple of 16; columns beyond value_dim are zero
  float* out;
  size_t ldo;  // [value_dim]
  int tokens;
  int key_dim;
  int value_dim;
};

// Causal depthwise convolution over a window of `kernel` inputs, then SiLU (HF causal_conv1d_update):
//   c[t][ch] = chain over j = 0 … kernel - 1 of fma(w[j][ch], u[t - (kernel - 1) + j][ch], acc), acc from +0;  out = silu(c)
// Inputs before the first token come from `window` ([kernel - 1][channels], oldest first), which is then moved on.
struct ConvArgs {
  const float* u;
  size_t ldu;
  const float* w;  // [kernel][channels]
  float* window;
  float* out;
  size_t ldo;
  int tokens;
  int channels;
  int channel_begin;  // channels to compute; begin is a multiple of 16
  int channel_end;
  int kernel;  // 2 … 8
};

struct KernelTable {
  const char* name;  // "scalar", "avx2", "avx512", "avx512bf16"
  int row_tile;      // granularity of row_begin / row_end

  // Packed activations of m rows and k columns. pack_* rounds FP32 to BF16 (nearest even; subnormals to signed zero; NaN quiet).
  // They fill the row tiles of [row_begin, row_end), same granularity as gemm.
  size_t (*packed_x_bytes_bf16)(int m, int k);
  void (*pack_x_bf16)(const float* x, size_t ldx, int m, int k, int row_begin, int row_end, void* packed);
  void (*gemm_bf16)(const GemmArgs*);

  size_t (*packed_x_bytes_f32)(int m, int k);
  // round_to_bf16: the values are rounded to BF16 first and kept as FP32 (BF16 activations against FP32 weights).
  void (*pack_x_f32)(const float* x, size_t ldx, int m, int k, int row_begin, int row_end, bool round_to_bf16,
                     void* packed);
  void (*gemm_f32)(const GemmArgs*);
  // The same operands, but sums in double: each product exact, added in ascending order of K from +0, rounded to FP32 once at the end. For
  // inputs that are not rounded to BF16: the FP32 reference, the router.
  void (*gemm_f32_wide)(const GemmArgs*);

  // By CodeFormat; activations packed by pack_x_bf16.
  void (*gemm_coded[kCodeFormats])(const GemmArgs*);

  // coded: K or V are FP8.
  size_t (*attention_scratch_bytes)(int m, int head_dim, bool coded);
  void (*attention_span)(const AttentionSpanArgs*);
  void (*attention_merge)(const AttentionMergeArgs*);

  void (*gdn)(const GdnArgs*);
  void (*conv_silu)(const ConvArgs*);

  // Row-wise and element-wise FP32 operations. x and out may be the same rows.
  // y = (x * (1 / sqrt(lane sum of x² / n + eps))) * w
  void (*rms_norm)(const float* x, size_t ldx, const float* w, float eps, int n, int rows, float* out, size_t ldo);
  // y = rms_norm(x) * silu(z), row by row (the GDN output norm)
  void (*rms_norm_gated)(const float* x, size_t ldx, const float* z, size_t ldz, const float* w, float eps, int n,
                         int rows, float* out, size_t ldo);
  // y = (x * (1 / sqrt(lane sum of x² + eps))) * scale
  void (*l2_norm)(const float* x, size_t ldx, float eps, float scale, int n, int rows, float* out, size_t ldo);
  // Rotate-half RoPE in place on the first 2 * half dims of each row: with c, s of [half],
  //   x[i] = x[i] * c[i] - x[i + half] * s[i];  x[i + half] = x[i + half] * c[i] + x[i] * s[i]     (separate multiply and add)
  void (*rope)(float* x, size_t ldx, const float* c, const float* s, int half, int rows);
  // y = silu(gate) * up,  silu(g) = g / (1 + exp(-g))
  void (*silu_mul)(const float* gate, const float* up, float* out, size_t n);
  // y = x * sigmoid(gate),  sigmoid(g) = 1 / (1 + exp(-g))
  void (*sigmoid_mul)(const float* x, const float* gate, float* out, size_t n);
  void (*add)(const float* a, const float* b, float* out, size_t n);
  // out = fma(x, scale, out)
  void (*scale_add)(const float* x, float scale, float* out, size_t n);
  // decay = exp(-(neg_a * softplus(a + dt_bias))) with neg_a = exp(A_log) given;  beta = sigmoid(b)
  void (*gdn_gates)(const float* a, const float* b, const float* exp_a_log, const float* dt_bias, float* decay,
                    float* beta, int heads);
  void (*exp)(const float* x, float* out, size_t n);
  void (*log)(const float* x, float* out, size_t n);
};

}  // namespace sterling::kernels
