// The seam between a model and the machine that runs it. model/ knows shapes and the order of operations; a backend owns layouts,
// threads, pools and kernels. Nothing here mentions a panel, a thread or a CPU flag.
//
// Life: load weights → configure(pools) → per step: begin_step(batch), operations, end of step. One thread drives a backend.
// All activations are FP32 matrices in the backend's memory. Where a product rounds its input, docs/numerics.md says.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "plan/memory.h"
#include "plan/precision.h"
#include "quant/stored_weight.h"
#include "spec/model_spec.h"
#include "tensor/batch_view.h"
#include "tensor/tensor_view.h"

namespace sterling::backend {

// How products are computed. kBf16, the product: inputs of a matrix product are rounded to BF16. kFp32, the in-tree reference: nothing
// is rounded below FP32. How K and V are stored is chosen apart (PoolOptions::kv).
enum class Compute { kBf16, kFp32 };

// Handles. Negative: absent.
struct LinearId {
  std::int32_t index = -1;
  bool present() const { return index >= 0; }
};
struct VectorId {
  std::int32_t index = -1;
  bool present() const { return index >= 0; }
};
struct EmbeddingId {
  std::int32_t index = -1;
  bool present() const { return index >= 0; }
};
struct RopeId {
  std::int32_t index = -1;
  bool present() const { return index >= 0; }
};

// FP32 activations [rows, cols], row-major, ld floats between rows. Borrowed from the backend. Only the backend may dereference
// `data`.
struct Matrix {
  float* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t ld = 0;
};

// Takes, of every `period` consecutive rows of a stored matrix, the rows [begin, end): q and gate of Qwen3.5's q_proj lie
// interleaved by head. period 0 takes all rows.
struct RowSelection {
  std::int64_t period = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// What a product multiplies with its weights: activations rounded to BF16 (under Compute::kBf16), or unrounded FP32 (the router and
// the shared expert's gate, whose outputs decide or scale everything behind them).
enum class ProductInput { kActivation, kFp32 };

enum class VectorTransform {
  kNone,
  kOnePlus,  // 1 + w, in FP32 (zero-centred norms)
  kExp,      // exp(w), in FP32 (A_log)
};

// A layer's place in the KV or state pool counts only the layers of its kind.
struct AttentionArgs {
  std::int32_t kv_layer = 0;
  const AttentionSpec* spec = nullptr;
};

struct GdnArgs {
  std::int32_t state_layer = 0;
  const GdnSpec* spec = nullptr;
  VectorId conv;       // from load_conv
  VectorId exp_a_log;  // [value_heads]
  VectorId dt_bias;    // [value_heads]
  VectorId norm;       // [value_dim]
  float norm_eps = 1e-6F;
};

// The routed experts of a layer.
struct MoeArgs {
  const MoeSpec* spec = nullptr;
  LinearId gate, up, down;  // of expert 0, from reserve_linears; the others' ids follow
};

// What the router decided, [tokens][experts_per_token], the most probable first.
struct RouterChoices {
  std::vector<std::int32_t> experts;
  std::vector<float> weights;
  // Per token: the last chosen logit minus the best that was not (infinity if all are chosen), and the largest |logit|.
  std::vector<float> margins;
  std::vector<float> magnitudes;
};

struct PoolOptions {
  std::int32_t kv_blocks = 0;
  std::int32_t state_slots = 0;
  std::int32_t max_batch_tokens = 0;
  std::int32_t max_batch_slices = 0;
  std::int32_t max_sequence_tokens = 0;
  std::optional<plan::KvFormat> kv = std::nullopt;  // absent: as computed, bf16 under kBf16 and fp32 under kFp32
  plan::KvScales kv_scales = {};                    // of the types that need them
};

// What happened to the elements of one layer's K or V on their way into the cache, since the start.
struct KvCounters {
  std::int64_t written = 0;
  std::int64_t clipped = 0;      // finite, but rounding would have gone beyond the largest finite value of the type
  std::int64_t underflowed = 0;  // not zero, stored as zero
  std::int64_t non_finite = 0;   // NaN and infinities
};

struct WeightFootprint {
  std::int64_t bytes = 0;  // as held in memory
  std::int64_t parameters = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual Compute compute() const = 0;
  // "avx512bf16, 2 threads": for the manifest and the log.
  virtual std::string description() const = 0;
  // For the resolver and the manifest: what can be done, and which kernel does what ("attention", "avx512bf16").
  virtual plan::BackendCapabilities capabilities() const = 0;
  virtual std::vector<std::pair<std::string, std::string>> kernels() const = 0;
  // As the pool is, or will be where configure() is told nothing.
  virtual plan::KvFormat kv_format() const = 0;
  // Allocated for K and V.
  virtual std::int64_t kv_pool_bytes() const = 0;
  // Allocated for recurrent state and convolution windows, and for activations and scratch.
  virtual std::int64_t state_pool_bytes() const = 0;
  virtual std::int64_t workspace_bytes() const = 0;
  // May be asked from any thread.
  virtual KvCounters kv_counters(std::int32_t kv_layer, bool value) const = 0;
  virtual WeightFootprint weights() const = 0;

  // ---- loading. Sources are checkpoint views; they are not referenced afterwards. kCorrupt names tensor and element of the
  // first NaN or infinity.
  // weight [n, k], checked (quant/stored_weight.h): y = x · weightᵀ (+ bias [n]). `bias` may be null.
  virtual Expected<LinearId> load_linear(const quant::StoredWeight& weight, const TensorView* bias,
                                         const RowSelection& rows, ProductInput input) = 0;
  // Room for many matrices in one piece of memory (the experts of a layer); their ids follow each other from the returned one. Each is
  // then filled from the weight that it was reserved for, so that sources can be let go one by one.
  virtual Expected<LinearId> reserve_linears(std::span<const quant::StoredWeight> weights, const RowSelection& rows,
                                             ProductInput input) = 0;
  virtual Status fill_linear(LinearId id, const quant::StoredWeight& weight, const RowSelection& rows) = 0;
  virtual Expected<VectorId> load_vector(const TensorView& vector, VectorTransform transform) = 0;
  // [channels, 1, kernel] of a causal depthwise convolution.
  virtual Expected<VectorId> load_conv(const TensorView& weight) = 0;
  virtual Expected<EmbeddingId> load_embedding(const TensorView& table) = 0;
  // The rows of a linear's weight as embedding table (tied).
  virtual EmbeddingId embedding_of(LinearId linear) = 0;
  virtual Expected<RopeId> add_rope(const RopeSpec& rope) = 0;

  // ---- pools and activations. Once, after loading.
  virtual Status configure(const ModelSpec& spec, const PoolOptions& options) = 0;
  // [max_batch_tokens, cols], kept for the backend's life. kResourceExhausted names the bytes.
  virtual Expected<Matrix> allocate(std::int64_t rows, std::int64_t cols) = 0;

  // ---- one step. `batch` must stay alive until the step's last operation.
  virtual void begin_step(const BatchView& batch) = 0;
  virtual void embed(EmbeddingId table, Matrix out) = 0;
  virtual void rms_norm(Matrix x, VectorId weight, float eps, Matrix out) = 0;
  // RMSNorm over each run of `width` columns (heads).
  virtual void head_norm(Matrix x, std::int64_t width, VectorId weight, float eps) = 0;
  // out[i] = x · weight[i]ᵀ (+ bias); add: out[i] += …  All share the input, which is rounded once.
  virtual void linear(Matrix x, std::span<const LinearId> weights, std::span<const Matrix> outs, bool add) = 0;
  virtual void rope(Matrix x, std::int64_t heads, std::int64_t head_dim, RopeId rope) = 0;
  virtual void silu_mul(Matrix gate, Matrix up, Matrix out) = 0;
  virtual void sigmoid_mul(Matrix x, Matrix gate, Matrix out) = 0;
  virtual void add(Matrix x, Matrix y, Matrix out) = 0;
  // Writes k and v [tokens, kv_heads * head_dim] of the step into the pool.
  virtual void write_kv(const AttentionArgs& args, Matrix k, Matrix v) = 0;
  // q [tokens, heads * head_dim] against everything in the pool up to each token's position, K and V read as stored.
  virtual void attention(const AttentionArgs& args, Matrix q, Matrix out) = 0;
  // qkv [tokens, conv_channels] before the convolution, z [tokens, value_heads * value_dim], a and b [tokens, value_heads]: convolution, delta
  // rule, gated norm → out [tokens, value_heads * value_dim].
  virtual void gdn(const GdnArgs& args, Matrix qkv, Matrix z, Matrix a, Matrix b, Matrix out) = 0;
  // out = sum over each token's experts of weight · down(silu(gate x) * (up x)), + sigmoid(shared_gate) · shared where that has rows.
  // x, shared and out [tokens, hidden], router [tokens, experts] (logits, overwritten), shared_gate [tokens, 1].
  virtual void moe(const MoeArgs& args, Matrix x, Matrix router, Matrix shared, Matrix shared_gate, Matrix out) = 0;
  // The rows of x whose logits are wanted, in order.
  virtual Matrix gather_logit_rows(Matrix x, Matrix out) = 0;
  // Product straight into host memory [x.rows, n].
  virtual void logits(Matrix x, LinearId weight, std::span<float> out) = 0;

  // ---- read-back: what the pools really hold, decoded to FP32. For proofs, golden tests and tools, not for the hot path.
  virtual std::vector<float> read(Matrix x) const = 0;
  // K or V of positions [0, tokens): [kv_heads][tokens][head_dim], code times scale.
  virtual std::vector<float> read_kv(const AttentionArgs& args, std::span<const std::int32_t> block_table,
                                     std::int64_t tokens, bool value) const = 0;
  // The same before the scale, element by element as its type lays out the bits (FP8: one byte, E4M3 or E5M2), native byte order.
  virtual std::vector<std::byte> read_kv_raw(const AttentionArgs& args, std::span<const std::int32_t> block_table,
                                             std::int64_t tokens, bool value) const = 0;
  // [kv_heads][tokens]: the scale that applies to each token: the stored one, the layer's or the head's, 1 for types without.
  virtual std::vector<float> read_kv_scales(const AttentionArgs& args, std::span<const std::int32_t> block_table,
                                            std::int64_t tokens, bool value) const = 0;
  // Flips bits (of the element as read_kv_raw shows it) of one stored element. For proofs that readers read what was written.
  virtual void poke_kv(const AttentionArgs& args, std::span<const std::int32_t> block_table, std::int64_t position,
                       std::int32_t kv_head, std::int32_t dim, bool value, std::uint32_t xor_mask) = 0;
  // Rows [row_begin, row_begin + rows) and columns [col_begin, col_begin + cols) of a packed weight, [rows][cols], without its bias: the products
  // of one-hot inputs (exact in every input type) by the very kernel that multiplies it.
  virtual std::vector<float> read_linear(LinearId id, std::int64_t row_begin, std::int64_t rows, std::int64_t col_begin,
                                         std::int64_t cols) const = 0;
  // As held after its transform; a convolution as [kernel][channels].
  virtual std::vector<float> read_vector(VectorId id) const = 0;
  // Of the last moe().
  virtual RouterChoices read_choices() const = 0;
  // [value_heads][key_dim][value_dim]
  virtual std::vector<float> read_state(const GdnArgs& args, std::int32_t slot) const = 0;
  // [conv_kernel - 1][conv_channels], oldest first
  virtual std::vector<float> read_conv_window(const GdnArgs& args, std::int32_t slot) const = 0;
};

}  // namespace sterling::backend
