// Inside of the CPU backend; one class, its parts in weights.cc,
// coded_weights.cc and weight_sizes.cc (loading), linear.cc (products), rows.cc (row-wise operations),
// attention.cc, gdn.cc, moe.cc, and activation_emulation.cc.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/pools.h"
#include "backend/cpu/workspace.h"
#include "platform/aligned_buffer.h"

namespace sterling::backend {

enum class PanelType { kBf16, kFp32, kCoded };

// A weight matrix as panels (kernels/contract.h).
struct PackedLinear {
  std::span<std::byte> panels;  // in weight_memory_, alone or with those of a layer's other experts
  PanelType type = PanelType::kBf16;
  InputForm input = InputForm::kBf16;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t panel_bytes = 0;
  kernels::CodeFormat code = kernels::CodeFormat::kFp8;  // of kCoded
  std::vector<float> row_scale;                          // [n] or empty
  std::vector<float> bias;                               // [n] or empty
  bool rounds_input = false;                             // ActivationEmulation applies
  float input_scale = 0.0F;                              // calibrated for its format; 0: none

  std::int64_t panel_count() const { return (n + kernels::kLanes - 1) / kernels::kLanes; }
  std::int64_t panels_bytes() const { return panel_count() * panel_bytes; }
};

// The stored row behind row `row` of a selection.
std::int64_t source_row(const RowSelection& selection, std::int64_t row);
// The panel format that keeps a weight's codes; none for plain weights and the rare layouts that are decoded instead.
std::optional<kernels::CodeFormat> code_format_of(const quant::StoredWeight& weight);
// What a weight becomes: panels of which type and size, without memory yet.
PackedLinear describe(Compute compute, const quant::StoredWeight& weight, const RowSelection& rows, ProductInput input);
// Row `row` of coded panels as FP32, each element rounded once.
void decode_coded_row(const PackedLinear& linear, std::int64_t row, float* out);

// Rows of token embeddings: an own row-major table in its stored type, or the panels of a tied linear.
struct Embedding {
  platform::AlignedBuffer rows;
  DType dtype = DType::kBF16;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int32_t tied_linear = -1;

  std::int64_t row_bytes() const { return k * (dtype == DType::kBF16 ? 2 : 4); }
};
// What a table becomes, without memory yet: BF16 stays BF16, all others are decoded to FP32.
Embedding describe(const TensorView& table);

struct Rope {
  std::vector<float> inverse_frequencies;  // [half]
  std::vector<float> cosines;              // [max_batch_tokens][half], of the current step
  std::vector<float> sines;
};

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(const CpuBackendOptions& options);

  Compute compute() const override { return options_.compute; }
  std::string description() const override;
  plan::BackendCapabilities capabilities() const override;
  std::vector<std::pair<std::string, std::string>> kernels() const override;
  plan::KvFormat kv_format() const override;
  std::int64_t kv_pool_bytes() const override { return kv_.bytes(); }
  KvCounters kv_counters(std::int32_t kv_layer, bool value) const override;
  WeightFootprint weights() const override { return footprint_; }

  Expected<LinearId> load_linear(const quant::StoredWeight& weight, const TensorView* bias, const RowSelection& rows,
                                 ProductInput input) override;
  Expected<LinearId> reserve_linears(std::span<const quant::StoredWeight> weights, const RowSelection& rows,
                                     ProductInput input) override;
  Status fill_linear(LinearId id, const quant::StoredWeight& weight, const RowSelection& rows) override;
  Expected<VectorId> load_vector(const TensorView& vector, VectorTransform transform) override;
  Expected<VectorId> load_conv(const TensorView& weight) override;
  Expected<EmbeddingId> load_embedding(const TensorView& table) override;
  EmbeddingId embedding_of(LinearId linear) override;
  Expected<RopeId> add_rope(const RopeSpec& rope) override;

  Status configure(const ModelSpec& spec, const PoolOptions& options) override;
  std::int64_t state_pool_bytes() const override;
  std::int64_t workspace_bytes() const override;
  Expected<Matrix> allocate(std::int64_t rows, std::int64_t cols) override;

  void begin_step(const BatchView& batch) override;
  void embed(EmbeddingId table, Matrix out) override;
  void rms_norm(Matrix x, VectorId weight, float eps, Matrix out) override;
  void head_norm(Matrix x, std::int64_t width, VectorId weight, float eps) override;
  void linear(Matrix x, std::span<const LinearId> weights, std::span<const Matrix> outs, bool add) override;
  void rope(Matrix x, std::int64_t heads, std::int64_t head_dim, RopeId rope) override;
  void silu_mul(Matrix gate, Matrix up, Matrix out) override;
  void sigmoid_mul(Matrix x, Matrix gate, Matrix out) override;
  void add(Matrix x, Matrix y, Matrix out) override;
  void write_kv(const AttentionArgs& args, Matrix k, Matrix v) override;
  void attention(const AttentionArgs& args, Matrix q, Matrix out) override;
  void gdn(const GdnArgs& args, Matrix qkv, Matrix z, Matrix a, Matrix b, Matrix out) override;
  void moe(const MoeArgs& args, Matrix x, Matrix router, Matrix shared, Matrix shared_gate, Matrix out) override;
  Matrix gather_logit_rows(Matrix x, Matrix out) override;
  void logits(Matrix x, LinearId weight, std::span<float> out) override;

  std::vector<float> read(Matrix x) const override;
  std::vector<float> read_kv(const AttentionArgs& args, std::span<const std::int32_t> block_table, std::int64_t tokens,
                             bool value) const override;
  std::vector<std::byte> read_kv_raw(const AttentionArgs& args, std::span<const std::int32_t> block_table,
                                     std::int64_t tokens, bool value) const override;
  std::vector<float> read_kv_scales(const AttentionArgs& args, std::span<const std::int32_t> block_table,
                                    std::int64_t tokens, bool value) const override;
  void poke_kv(const AttentionArgs& args, std::span<const std::int32_t> block_table, std::int64_t position,
               std::int32_t kv_head, std::int32_t dim, bool value, std::uint32_t xor_mask) override;
  std::vector<float> read_linear(LinearId id, std::int64_t row_begin, std::int64_t rows, std::int64_t col_begin,
                                 std::int64_t cols) const override;
  std::vector<float> read_vector(VectorId id) const override;
  RouterChoices read_choices() const override;
  std::vector<float> read_state(const GdnArgs& args, std::int32_t slot) const override;
  std::vector<float> read_conv_window(const GdnArgs& args, std::int32_t slot) const override;

 private:
  // One attention job: query tokens [token_begin, token_end) of a slice, one KV head.
  struct AttentionUnit {
    std::int32_t slice = 0;
    std::int32_t kv_head = 0;
    std::int32_t token_begin = 0;  // within the slice
    std::int32_t token_end = 0;
    std::int32_t spans = 0;
    std::int32_t first_partial = 0;  // split mode: index of its first (unit, span) job
  };
  struct SplitJob {
    std::int32_t unit = 0;
    std::int32_t span = 0;
  };
  struct Partials {
    float* max = nullptr;
    float* sum = nullptr;
    float* out = nullptr;
  };
  // Per-thread working memory of attention.
  struct AttentionScratch {
    float* q = nullptr;  // [rows][head_dim]
    std::byte* packed_q = nullptr;
    std::byte* kernel = nullptr;
    float* merged = nullptr;  // [rows][head_dim]
    Partials partials;        // [spans][rows]
  };

  // Rows of one expert, at most kExpertRows: [begin, end) of the step's (expert, token) pairs in ascending order.
  struct ExpertChunk {
    std::int32_t expert = 0;
    std::int32_t begin = 0;
    std::int32_t end = 0;
  };
  // Per-thread working memory of moe().
  struct MoeScratch {
    float* gathered = nullptr;  // [kExpertRows][hidden]
    float* product = nullptr;   // [kExpertRows][widest output]
    std::byte* packed[kInputForms] = {};
  };

  bool bf16() const { return options_.compute == Compute::kBf16; }
  void parallel_rows(std::int64_t rows, std::int64_t floats_per_row, const auto& work);
  Status store_codes(const quant::StoredWeight& stored, const RowSelection& rows, PackedLinear& linear);
  Status store_panels(const quant::StoredWeight& stored, const RowSelection& rows, PackedLinear& linear);
  // The product itself, of inputs as they are.
  void multiply(Matrix x, std::span<const LinearId> weights, std::span<const Matrix> outs, bool add);
  // activation_emulation.cc: what happens instead where products emulate quantised activations.
  Status prepare_emulation(const quant::StoredWeight& weight, PackedLinear& linear) const;
  void multiply_rounded(Matrix x, std::span<const LinearId> weights, std::span<const Matrix> outs, bool add);
  float emulated_scale(Matrix x, float calibrated);
  void round_rows(Matrix x, float scale) const;
  Matrix round_expert_input(const MoeArgs& args, const ExpertChunk& chunk, Matrix rows,
                            const MoeScratch& scratch) const;
  void round_expert_hidden(const MoeArgs& args, std::int64_t pairs);
  std::size_t packed_bytes(InputForm form, std::int64_t rows, std::int64_t k) const;
  void pack_rows(InputForm form, Matrix x, int row_begin, int row_end, void* packed) const;
  const void* pack_input(Matrix x, InputForm form);
  // Runs the kernel that fits the weight's panels; fills in what `args` takes from the weight.
  void run_gemm(const PackedLinear& w, kernels::GemmArgs args) const;
  Status configure_kv(const ModelSpec& spec);
  // Of a stored K or V: what its codes are multiplied by where the scale doesn't lie beside the token.
  float kv_scale(std::int32_t kv_layer, std::int32_t kv_head, bool value) const;
  // Calls visit(tile, slot, index) for each of [kv_heads][tokens].
  void visit_kv(const AttentionArgs& args, std::span<const std::int32_t> block_table, std::int64_t tokens, bool value,
                const auto& visit) const;
  Status configure_attention(const AttentionWorkspace& sizes);
  Status configure_moe(const MoeSpec& moe, const ExpertWorkspace& sizes);
  void route(const MoeSpec& spec, Matrix router, std::int64_t token);
  void group_rows(const MoeSpec& spec, std::int64_t tokens);
  // A chunk's rows of x, one after another.
  Matrix gather_rows(const ExpertChunk& chunk, Matrix x, const MoeScratch& scratch) const;
  void run_expert_panels(const PackedLinear& w, const void* packed, std::int64_t rows, std::int64_t panel_begin,
                         std::int64_t panel_end, float* out, std::int64_t ldo) const;
  void expert_gate_up(const MoeArgs& args, const ExpertChunk& chunk, Matrix x, std::int64_t panel_begin,
                      std::int64_t panel_end, const MoeScratch& scratch);
  void expert_down(const MoeArgs& args, Matrix shared, std::int64_t panel_begin, std::int64_t panel_end,
                   const MoeScratch& scratch, Matrix out);
  void collect_units(const AttentionSpec& spec);
  void pack_queries(const AttentionSpec& spec, const AttentionUnit& unit, Matrix q, const AttentionScratch& scratch);
  void run_span(const AttentionArgs& args, const AttentionUnit& unit, std::int32_t span,
                const AttentionScratch& scratch, const Partials& out);
  void merge_unit(const AttentionSpec& spec, const AttentionUnit& unit, const Partials& partials, float* merged,
                  Matrix out);

  CpuBackendOptions options_;
  const kernels::KernelTable& kernels_;
  platform::ThreadPool& pool_;
  WeightFootprint footprint_;

  std::vector<platform::AlignedBuffer> weight_memory_;
  std::vector<PackedLinear> linears_;
  std::vector<std::vector<float>> vectors_;
  std::vector<Embedding> embeddings_;
  std::vector<Rope> ropes_;

  PoolOptions pools_;
  KvPool kv_;
  // Counters of a layer's K (2 * layer) and V (2 * layer + 1); tasks add to them, anyone reads.
  struct AtomicKvCounters {
    std::atomic<std::int64_t> written{0}, clipped{0}, underflowed{0}, non_finite{0};
  };
  std::vector<AtomicKvCounters> kv_counters_;
  StatePool states_;
  std::vector<platform::AlignedBuffer> activations_;
  platform::AlignedBuffer packed_[kInputForms];  // a product's input, by form
  platform::AlignedBuffer conv_out_;             // [max_batch_tokens][conv channels]
  platform::AlignedBuffer gates_;                // decay and beta, [2][max_batch_tokens][value_heads]
  platform::AlignedBuffer attention_memory_;
  std::vector<AttentionScratch> attention_scratch_;  // per thread
  std::int32_t attention_rows_ = 0;                  // query rows of a unit at most
  platform::AlignedBuffer split_memory_;
  std::int64_t split_rows_ = 0;  // rows × spans that split mode can hold
  std::vector<AttentionUnit> units_;
  std::vector<SplitJob> split_jobs_;

  // The last moe().
  std::int64_t routed_tokens_ = 0;
  std::vector<std::int32_t> chosen_;  // [tokens][experts_per_token], most probable first
  std::vector<float> chosen_weight_;
  std::vector<float> router_margin_, router_magnitude_;  // [tokens]
  std::vector<float> shared_scale_;                      // [tokens] sigmoid of the shared expert's gate
  std::vector<std::int32_t> row_token_;                  // of each pair, by expert and then token, both ascending
  std::vector<float> row_weight_;
  std::vector<std::int32_t> expert_begin_;  // [experts + 1]
  std::vector<ExpertChunk> chunks_;
  platform::AlignedBuffer expert_hidden_;  // [pairs][intermediate]
  platform::AlignedBuffer moe_memory_;
  std::vector<MoeScratch> moe_scratch_;  // per thread

  std::vector<float> rounded_;        // ActivationEmulation: a product's input
  float experts_input_scale_ = 0.0F;  // likewise: of all experts' inputs, where it isn't calibrated

  // The current step.
  std::span<const SequenceSlice> slices_;
  std::vector<std::int32_t> positions_;    // [tokens]
  std::vector<std::int32_t> slice_begin_;  // first row of each slice
};

// Rows are split so that a task has work for a few microseconds; one small task runs on the caller alone.
void CpuBackend::parallel_rows(std::int64_t rows, std::int64_t floats_per_row, const auto& work) {
  constexpr std::int64_t kFloatsPerTask = 4096;
  const std::int64_t per_task = std::max<std::int64_t>(1, kFloatsPerTask / std::max<std::int64_t>(1, floats_per_row));
  const std::int64_t tasks = (rows + per_task - 1) / per_task;
  pool_.parallel(static_cast<std::size_t>(tasks), [&](std::size_t task, std::size_t) {
    const std::int64_t begin = static_cast<std::int64_t>(task) * per_task;
    work(begin, std::min(rows, begin + per_task));
  });
}

}  // namespace sterling::backend
