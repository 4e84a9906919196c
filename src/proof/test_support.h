// For tests only: a backend that does what another does, but for one fault, and what is needed to prove over it.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "formats/checkpoint.h"
#include "kernels/dispatch.h"
#include "model/model.h"
#include "platform/thread_pool.h"
#include "proof/proof.h"

namespace sterling::proof {

// Every operation as the inner backend does it; a fault replaces one.
class FaultyBackend : public backend::Backend {
 public:
  using Matrix = backend::Matrix;
  using AttentionArgs = backend::AttentionArgs;
  using GdnArgs = backend::GdnArgs;
  explicit FaultyBackend(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}

  backend::Compute compute() const override { return inner_->compute(); }
  std::string description() const override { return inner_->description(); }
  plan::BackendCapabilities capabilities() const override { return inner_->capabilities(); }
  std::vector<std::pair<std::string, std::string>> kernels() const override { return inner_->kernels(); }
  plan::KvFormat kv_format() const override { return inner_->kv_format(); }
  std::int64_t kv_pool_bytes() const override { return inner_->kv_pool_bytes(); }
  std::int64_t state_pool_bytes() const override { return inner_->state_pool_bytes(); }
  std::int64_t workspace_bytes() const override { return inner_->workspace_bytes(); }
  backend::KvCounters kv_counters(std::int32_t layer, bool value) const override {
    return inner_->kv_counters(layer, value);
  }
  backend::WeightFootprint weights() const override { return inner_->weights(); }
  Expected<backend::LinearId> load_linear(const quant::StoredWeight& weight, const TensorView* bias,
                                          const backend::RowSelection& rows, backend::ProductInput input) override {
    return inner_->load_linear(weight, bias, rows, input);
  }
  Expected<backend::LinearId> reserve_linears(std::span<const quant::StoredWeight> weights,
                                              const backend::RowSelection& rows, backend::ProductInput input) override {
    return inner_->reserve_linears(weights, rows, input);
  }
  Status fill_linear(backend::LinearId id, const quant::StoredWeight& weight,
                     const backend::RowSelection& rows) override {
    return inner_->fill_linear(id, weight, rows);
  }
  Expected<backend::VectorId> load_vector(const TensorView& vector, backend::VectorTransform transform) override {
    return inner_->load_vector(vector, transform);
  }
  Expected<backend::VectorId> load_conv(const TensorView& weight) override { return inner_->load_conv(weight); }
  Expected<backend::EmbeddingId> load_embedding(const TensorView& table) override {
    return inner_->load_embedding(table);
  }
  backend::EmbeddingId embedding_of(backend::LinearId linear) override { return inner_->embedding_of(linear); }
  Expected<backend::RopeId> add_rope(const RopeSpec& rope) override { return inner_->add_rope(rope); }
  Status configure(const ModelSpec& spec, const backend::PoolOptions& options) override {
    return inner_->configure(spec, options);
  }
  Expected<Matrix> allocate(std::int64_t rows, std::int64_t cols) override { return inner_->allocate(rows, cols); }
  void begin_step(const BatchView& batch) override { inner_->begin_step(batch); }
  void embed(backend::EmbeddingId table, Matrix out) override { inner_->embed(table, out); }
  void rms_norm(Matrix x, backend::VectorId weight, float eps, Matrix out) override {
    inner_->rms_norm(x, weight, eps, out);
  }
  void head_norm(Matrix x, std::int64_t width, backend::VectorId weight, float eps) override {
    inner_->head_norm(x, width, weight, eps);
  }
  void linear(Matrix x, std::span<const backend::LinearId> weights, std::span<const Matrix> outs, bool add) override {
    inner_->linear(x, weights, outs, add);
  }
  void rope(Matrix x, std::int64_t heads, std::int64_t head_dim, backend::RopeId rope) override {
    inner_->rope(x, heads, head_dim, rope);
  }
  void silu_mul(Matrix gate, Matrix up, Matrix out) override { inner_->silu_mul(gate, up, out); }
  void sigmoid_mul(Matrix x, Matrix gate, Matrix out) override { inner_->sigmoid_mul(x, gate, out); }
  void add(Matrix x, Matrix y, Matrix out) override { inner_->add(x, y, out); }
  void write_kv(const AttentionArgs& args, Matrix k, Matrix v) override { inner_->write_kv(args, k, v); }
  void attention(const AttentionArgs& args, Matrix q, Matrix out) override { inner_->attention(args, q, out); }
  void gdn(const GdnArgs& args, Matrix qkv, Matrix z, Matrix a, Matrix b, Matrix out) override {
    inner_->gdn(args, qkv, z, a, b, out);
  }
  void moe(const backend::MoeArgs& args, Matrix x, Matrix router, Matrix shared, Matrix shared_gate,
           Matrix out) override {
    inner_->moe(args, x, router, shared, shared_gate, out);
  }
  Matrix gather_logit_rows(Matrix x, Matrix out) override { return inner_->gather_logit_rows(x, out); }
  void logits(Matrix x, backend::LinearId weight, std::span<float> out) override { inner_->logits(x, weight, out); }
  std::vector<float> read(Matrix x) const override { return inner_->read(x); }
  std::vector<float> read_kv(const AttentionArgs& args, std::span<const std::int32_t> blocks, std::int64_t tokens,
                             bool value) const override {
    return inner_->read_kv(args, blocks, tokens, value);
  }
  std::vector<std::byte> read_kv_raw(const AttentionArgs& args, std::span<const std::int32_t> blocks,
                                     std::int64_t tokens, bool value) const override {
    return inner_->read_kv_raw(args, blocks, tokens, value);
  }
  std::vector<float> read_kv_scales(const AttentionArgs& args, std::span<const std::int32_t> blocks,
                                    std::int64_t tokens, bool value) const override {
    return inner_->read_kv_scales(args, blocks, tokens, value);
  }
  void poke_kv(const AttentionArgs& args, std::span<const std::int32_t> blocks, std::int64_t position,
               std::int32_t kv_head, std::int32_t dim, bool value, std::uint32_t mask) override {
    inner_->poke_kv(args, blocks, position, kv_head, dim, value, mask);
  }
  std::vector<float> read_linear(backend::LinearId id, std::int64_t row_begin, std::int64_t rows,
                                 std::int64_t col_begin, std::int64_t cols) const override {
    return inner_->read_linear(id, row_begin, rows, col_begin, cols);
  }
  std::vector<float> read_vector(backend::VectorId id) const override { return inner_->read_vector(id); }
  backend::RouterChoices read_choices() const override { return inner_->read_choices(); }
  std::vector<float> read_state(const GdnArgs& args, std::int32_t slot) const override {
    return inner_->read_state(args, slot);
  }
  std::vector<float> read_conv_window(const GdnArgs& args, std::int32_t slot) const override {
    return inner_->read_conv_window(args, slot);
  }

 protected:
  Backend& inner() { return *inner_; }

 private:
  std::unique_ptr<Backend> inner_;
};

using MakeFault = std::function<std::unique_ptr<backend::Backend>(std::unique_ptr<backend::Backend>)>;

struct Subject {
  std::filesystem::path checkpoint;
  backend::Compute compute = backend::Compute::kBf16;
  std::string isa = "auto";
  plan::Precision declared = {};  // what the table says; kv and kv_scales
  plan::KvFormat pool = {};       // what is allocated; the same unless a test wants it otherwise
  plan::KvScales pool_scales = {};
  MakeFault fault = {};
};

inline plan::KvScales even_scales(const ModelSpec& spec, float k, float v, bool per_head) {
  const auto layers = static_cast<std::size_t>(spec.count(LayerKind::kFullAttention));
  const std::size_t values = per_head ? static_cast<std::size_t>(spec.attention.kv_heads) : 1;
  plan::KvScales scales;
  for (std::size_t layer = 0; layer < layers; ++layer) {
    scales.k.emplace_back();
    scales.v.emplace_back();
    for (std::size_t i = 0; i < values; ++i) {
      scales.k.back().push_back(k * static_cast<float>(1 + layer + 2 * i));
      scales.v.back().push_back(v * static_cast<float>(1 + layer + 2 * i));
    }
  }
  return scales;
}

// Loads, configures and proves. The report, or why it could not be had.
inline Expected<ProofReport> prove_subject(const Subject& subject) {
  auto checkpoint = formats::Checkpoint::open(subject.checkpoint);
  if (!checkpoint) return checkpoint.error();
  auto pool = platform::ThreadPool::create({.threads = 2, .pin_cpus = {}});
  if (!pool) return pool.error();
  auto kernels = kernels::select(subject.isa);
  if (!kernels) return kernels.error();
  std::unique_ptr<backend::Backend> backend = backend::make_cpu_backend({subject.compute, *kernels, pool->get()});
  if (subject.fault) backend = subject.fault(std::move(backend));
  auto model = model::Model::load(*checkpoint, *backend, {});
  if (!model) return model.error();
  backend::PoolOptions pools;
  pools.kv_blocks = 8;
  pools.state_slots = (*model)->spec().gdn ? 3 : 0;
  pools.max_batch_tokens = 32;
  pools.max_batch_slices = 2;
  pools.max_sequence_tokens = 128;
  pools.kv = subject.pool;
  pools.kv_scales = subject.pool_scales;
  if (Status status = (*model)->configure(pools); !status) return status.error();
  const std::vector<std::int32_t> blocks = {5, 2, 7};
  plan::Precision declared = subject.declared;
  declared.compute = subject.compute == backend::Compute::kBf16 ? "bf16" : "fp32";
  return prove(**model, declared, {blocks, (*model)->spec().gdn ? 1 : -1});
}

}  // namespace sterling::proof
