#include "model/model.h"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "formats/quantization_config.h"
#include "model/architecture.h"
#include "quant/decode.h"

namespace sterling::model {
namespace {

using backend::LinearId;
using backend::Matrix;

// GGUF carries llama3's scaling as per-frequency divisors (a tensor) instead of parameters.
constexpr std::string_view kRopeDivisors = "rope_freqs.weight";

Status read_rope_divisors(const formats::Checkpoint& checkpoint, ModelSpec& spec) {
  const TensorView* tensor = checkpoint.find(kRopeDivisors);
  if (tensor == nullptr) return {};
  RopeSpec& rope = spec.attention.rope;
  auto values = quant::decode(*tensor);
  if (!values) return values.error();
  if (static_cast<std::int32_t>(values->size()) != rope.rotary_dim / 2) {
    return make_error(ErrorCode::kCorrupt,
                      fmt::format("{}: tensor {} has {} values, expected {} (half of {} rotary dims)", tensor->file,
                                  tensor->name, values->size(), rope.rotary_dim / 2, rope.rotary_dim),
                      tensor->name);
  }
  for (const float value : *values) {
    if (value >= 1e-3F && value <= 1e6F) continue;
    return make_error(ErrorCode::kCorrupt,
                      fmt::format("{}: tensor {} holds {}, expected frequency divisors from 0.001 to 1e6", tensor->file,
                                  tensor->name, value),
                      tensor->name);
  }
  rope.freq_divisors = std::move(*values);
  return {};
}

Expected<SpecResult> read_spec(const formats::Checkpoint& checkpoint) {
  auto result = read_model_spec(checkpoint.config(), checkpoint.config_file());
  if (!result) return result.error();
  if (Status status = read_rope_divisors(checkpoint, result->spec); !status) return status.error();
  return result;
}

DecoderWeights bind_all(const SpecResult& result, WeightBinder& binder, backend::RopeId rope) {
  DecoderWeights weights = result.architecture->bind(result.spec, binder, rope);
  binder.skip_suffix(kRopeDivisors, "RoPE frequency divisors (used)");
  binder.skip_kv_scales();
  return weights;
}

std::int64_t total_bytes(const formats::Checkpoint& checkpoint) {
  std::int64_t bytes = 0;
  for (const TensorView& tensor : checkpoint.tensors()) bytes += static_cast<std::int64_t>(tensor.data.size());
  return bytes;
}

// Methods that need other decoders or other arithmetic are refused by name, before their tensors look like faults.
Expected<formats::QuantizationConfig> check_method(const formats::Checkpoint& checkpoint) {
  auto config = formats::read_quantization_config(checkpoint.config(), checkpoint.hf_quant_config(), checkpoint.path());
  if (!config) return config;
  if (config->refusal) return make_error(ErrorCode::kUnsupported, *config->refusal, config->file);
  for (const TensorView& tensor : checkpoint.tensors()) {
    const std::string_view method = formats::foreign_method_of_tensor(tensor.name);
    if (method.empty()) continue;
    return make_error(ErrorCode::kUnsupported,
                      formats::refuse_method(fmt::format("{}: tensor {}", tensor.file, tensor.name), method),
                      tensor.name);
  }
  return config;
}

// The configuration files of a checkpoint, read.
struct Reading {
  SpecResult model;
  formats::QuantizationConfig quantization;
};

// One run over headers: what load() does before it touches weights. With `sizes` it fills `plan` as well.
Expected<Reading> examine(const formats::Checkpoint& checkpoint, Examination& examination,
                          const backend::WeightSizes* sizes = nullptr, WeightPlan* plan = nullptr) {
  auto result = read_spec(checkpoint);
  if (!result) {
    examination.problems.push_back({"config", result.error()});
    return result.error();
  }
  examination.spec = result->spec;
  auto quantization = check_method(checkpoint);
  if (!quantization) {
    examination.problems.push_back({"unsupported_quantisation", quantization.error()});
    return quantization.error();
  }
  Reading reading{std::move(*result), std::move(*quantization)};
  if (!checkpoint.weights_present()) return reading;
  WeightBinder binder = sizes != nullptr ? WeightBinder(checkpoint, *sizes) : WeightBinder(checkpoint);
  binder.set_block(reading.quantization.block_rows, reading.quantization.block_cols);
  bind_all(reading.model, binder, {});
  Status status = binder.finish();
  examination.problems = binder.problems();
  examination.skipped = binder.skipped();
  examination.bound = binder.bound();
  if (!status) return status.error();
  if (plan != nullptr) *plan = binder.plan();
  return reading;
}

Error no_weights(const formats::Checkpoint& checkpoint) {
  return make_error(ErrorCode::kNotFound,
                    fmt::format("{} has a configuration but no weights; expected safetensors files or a .gguf file",
                                checkpoint.path()));
}

}  // namespace

Expected<WeightPlan> plan_weights(const formats::Checkpoint& checkpoint, const backend::WeightSizes& sizes) {
  if (!checkpoint.weights_present()) return no_weights(checkpoint);
  Examination examination;
  WeightPlan plan;
  if (auto result = examine(checkpoint, examination, &sizes, &plan); !result) return result.error();
  return plan;
}

Expected<CheckResult> check(const formats::Checkpoint& checkpoint) {
  Examination examination;
  auto result = examine(checkpoint, examination);
  if (!result) return result.error();
  return CheckResult{std::move(result->model.spec), std::move(examination.skipped), std::move(examination.bound)};
}

Examination examine(const formats::Checkpoint& checkpoint) {
  Examination examination;
  [[maybe_unused]] const auto result = examine(checkpoint, examination);
  return examination;
}

Expected<std::vector<WeightBinder::Wanted>> list_tensors(const boost::json::object& config,
                                                         std::string_view config_file) {
  auto result = read_model_spec(config, config_file);
  if (!result) return result.error();
  std::vector<WeightBinder::Wanted> list;
  WeightBinder binder(list);
  result->architecture->bind(result->spec, binder, {});
  return list;
}

Expected<std::unique_ptr<Model>> Model::load(const formats::Checkpoint& checkpoint, backend::Backend& backend,
                                             const LoadProgress& progress) {
  if (!checkpoint.weights_present()) return no_weights(checkpoint);
  // All names and shapes before the first byte of weights: an operator learns of a fault in milliseconds, not after a long load.
  Examination examination;
  auto result = examine(checkpoint, examination);
  if (!result) return result.error();
  std::unique_ptr<Model> model(new Model(backend, result->model.spec));
  backend::RopeId rope;
  if (model->spec_.count(LayerKind::kFullAttention) > 0) {
    auto added = backend.add_rope(model->spec_.attention.rope);
    if (!added) return added.error();
    rope = *added;
  }
  std::int64_t done = 0;
  const std::int64_t total = total_bytes(checkpoint);
  WeightBinder binder(checkpoint, backend, ShardSpec{}, [&](std::int64_t bytes) {
    done += bytes;
    if (progress) progress(done, total);
  });
  binder.set_block(result->quantization.block_rows, result->quantization.block_cols);
  model->weights_ = bind_all(result->model, binder, rope);
  if (Status status = binder.finish(); !status) return status.error();
  model->skipped_ = binder.skipped();
  model->bound_ = binder.bound();
  model->placed_ = binder.placed();
  if (progress) progress(total, total);
  return model;
}

Status Model::configure(const backend::PoolOptions& options) {
  if (Status status = backend_.configure(spec_, options); !status) return status;
  auto activations = Activations::allocate(backend_, spec_, options.max_batch_tokens);
  if (!activations) return activations.error();
  act_ = *activations;
  auto head = backend_.allocate(options.max_batch_tokens, spec_.hidden_size);
  if (!head) return head.error();
  head_input_ = *head;
  limits_.vocab_size = spec_.vocab_size;
  limits_.max_sequence_tokens = options.max_sequence_tokens;
  limits_.block_tokens = plan::kBlockTokens;
  limits_.kv_blocks = options.kv_blocks;
  limits_.state_slots = spec_.gdn ? options.state_slots : 0;
  limits_.max_batch_tokens = options.max_batch_tokens;
  limits_.max_batch_slices = options.max_batch_slices;
  return {};
}

Status Model::forward(const BatchView& batch, std::span<float> logits) {
  return forward(batch, logits, nullptr);
}

Status Model::forward(const BatchView& batch, std::span<float> logits, ForwardProbe* probe) {
  const std::int64_t tokens = batch.total_tokens();
  if (tokens < 1 || tokens > limits_.max_batch_tokens) {
    return make_error(ErrorCode::kInternal,
                      fmt::format("a step of {} tokens; accepted: 1 to {}", tokens, limits_.max_batch_tokens));
  }
  if (static_cast<std::int64_t>(logits.size()) != batch.total_logit_rows() * spec_.vocab_size) {
    return make_error(ErrorCode::kInternal, "the logits buffer does not fit the step's rows");
  }
  backend_.begin_step(batch);
  const Matrix residual = top(act_.residual, tokens);
  backend_.embed(weights_.embedding, residual);
  if (probe != nullptr) probe->hidden(0, backend_.read(residual));
  for (std::int32_t i = 0; i < spec_.layer_count(); ++i) {
    run_layer(i, tokens, probe);
    if (probe != nullptr) probe->hidden(i + 1, backend_.read(residual));
  }
  if (probe != nullptr) {
    const Matrix normed = top(act_.normed, tokens);
    backend_.rms_norm(residual, weights_.final_norm, spec_.rms_norm_eps, normed);
    probe->hidden(spec_.layer_count() + 1, backend_.read(normed));
  }
  if (logits.empty()) return {};
  const Matrix wanted = backend_.gather_logit_rows(residual, head_input_);
  backend_.rms_norm(wanted, weights_.final_norm, spec_.rms_norm_eps, wanted);
  backend_.logits(wanted, weights_.lm_head, logits);
  return {};
}

// residual += in · weightᵀ. With a probe the product is formed apart first; the sum has the same bits.
void Model::project(Matrix in, LinearId weight, std::int64_t tokens,
                    const std::function<void(std::vector<float>)>& probe) {
  const Matrix residual = top(act_.residual, tokens);
  if (!probe) {
    backend_.linear(in, std::span(&weight, 1), std::span(&residual, 1), true);
    return;
  }
  const Matrix product = top(act_.block, tokens);
  backend_.linear(in, std::span(&weight, 1), std::span(&product, 1), false);
  probe(backend_.read(product));
  backend_.add(residual, product, residual);
}

void Model::run_layer(std::int32_t index, std::int64_t tokens, ForwardProbe* probe) {
  const DecoderLayer& layer = weights_.layers[static_cast<std::size_t>(index)];
  const Matrix residual = top(act_.residual, tokens);
  const Matrix normed = top(act_.normed, tokens);
  std::function<void(std::vector<float>)> see_mixer;
  std::function<void(std::vector<float>)> see_mlp;
  if (probe != nullptr) {
    see_mixer = [&](std::vector<float> values) { probe->mixer(index, std::move(values)); };
    see_mlp = [&](std::vector<float> values) { probe->mlp(index, std::move(values)); };
  }

  backend_.rms_norm(residual, layer.input_norm, spec_.rms_norm_eps, normed);
  if (const auto* attention = std::get_if<AttentionBlock>(&layer.mixer)) {
    run_attention(index, *attention, tokens, probe);
    const std::int64_t width = std::int64_t{spec_.attention.heads} * spec_.attention.head_dim;
    project(top(act_.mixed, tokens, width), attention->o, tokens, see_mixer);
  } else {
    const auto& gdn = std::get<GdnBlock>(layer.mixer);
    run_gdn(index, gdn, tokens, probe);
    const std::int64_t width = std::int64_t{spec_.gdn->value_heads} * spec_.gdn->value_dim;
    project(top(act_.mixed, tokens, width), gdn.out, tokens, see_mixer);
  }

  backend_.rms_norm(residual, layer.post_norm, spec_.rms_norm_eps, normed);
  if (const auto* moe = std::get_if<MoeBlock>(&layer.mlp)) {
    run_moe(*moe, tokens);
    const Matrix output = top(act_.block, tokens);
    if (probe != nullptr) {
      probe->router(index, backend_.read_choices());
      see_mlp(backend_.read(output));
    }
    backend_.add(residual, output, residual);
    return;
  }
  const auto& mlp = std::get<MlpBlock>(layer.mlp);
  const std::array inputs{mlp.gate, mlp.up};
  const std::array outputs{top(act_.mlp_gate, tokens, spec_.intermediate_size),
                           top(act_.mlp_up, tokens, spec_.intermediate_size)};
  backend_.linear(normed, inputs, outputs, false);
  backend_.silu_mul(outputs[0], outputs[1], outputs[0]);
  project(outputs[0], mlp.down, tokens, see_mlp);
}

// Leaves the block's output in act_.block.
void Model::run_moe(const MoeBlock& block, std::int64_t tokens) {
  const MoeSpec& moe = *spec_.moe;
  const bool has_shared = block.shared_gate.present();
  const Matrix normed = top(act_.normed, tokens);
  const std::array weights{block.router, block.shared_gate, block.shared.gate, block.shared.up};
  const std::array outputs{top(act_.router, tokens), top(act_.shared_gate, tokens),
                           top(act_.mlp_gate, tokens, moe.shared_intermediate),
                           top(act_.mlp_up, tokens, moe.shared_intermediate)};
  const std::size_t count = has_shared ? 4 : 1;
  backend_.linear(normed, std::span(weights).first(count), std::span(outputs).first(count), false);
  Matrix shared;
  if (has_shared) {
    shared = top(act_.shared, tokens);
    backend_.silu_mul(outputs[2], outputs[3], outputs[2]);
    backend_.linear(outputs[2], std::span(&block.shared.down, 1), std::span(&shared, 1), false);
  }
  backend_.moe({&moe, block.gate, block.up, block.down}, normed, outputs[0], shared, outputs[1],
               top(act_.block, tokens));
}

void Model::run_attention(std::int32_t layer, const AttentionBlock& block, std::int64_t tokens, ForwardProbe* probe) {
  const AttentionSpec& attention = spec_.attention;
  const Matrix q = top(act_.q, tokens);
  const Matrix k = top(act_.k, tokens);
  const Matrix v = top(act_.v, tokens);
  const Matrix gate = top(act_.gate, tokens);
  const std::array weights{block.q, block.k, block.v, block.gate};
  const std::array outputs{q, k, v, gate};
  const std::size_t count = block.gate.present() ? 4 : 3;
  backend_.linear(top(act_.normed, tokens), std::span(weights).first(count), std::span(outputs).first(count), false);
  if (block.q_norm.present()) {
    backend_.head_norm(q, attention.head_dim, block.q_norm, spec_.rms_norm_eps);
    backend_.head_norm(k, attention.head_dim, block.k_norm, spec_.rms_norm_eps);
  }
  backend_.rope(q, attention.heads, attention.head_dim, block.rope);
  backend_.rope(k, attention.kv_heads, attention.head_dim, block.rope);
  const backend::AttentionArgs args{block.kv_layer, &spec_.attention};
  backend_.write_kv(args, k, v);
  const Matrix mixed = top(act_.mixed, tokens, q.cols);
  backend_.attention(args, q, mixed);
  if (probe != nullptr) probe->attention(layer, args, q, k, v, mixed);
  if (block.gate.present()) backend_.sigmoid_mul(mixed, gate, mixed);
}

backend::GdnArgs Model::gdn_args(const GdnBlock& block) const {
  return {block.state_layer, &*spec_.gdn, block.conv, block.exp_a_log, block.dt_bias, block.norm, spec_.rms_norm_eps};
}

void Model::run_gdn(std::int32_t layer, const GdnBlock& block, std::int64_t tokens, ForwardProbe* probe) {
  const GdnSpec& gdn = *spec_.gdn;
  const std::int64_t key_width = std::int64_t{gdn.key_heads} * gdn.key_dim;
  const std::int64_t width = std::int64_t{gdn.value_heads} * gdn.value_dim;
  const Matrix qkv = top(act_.qkv, tokens);
  const Matrix z = top(act_.z, tokens);
  const Matrix a = top(act_.a, tokens);
  const Matrix b = top(act_.b, tokens);
  const Matrix normed = top(act_.normed, tokens);
  if (block.qkv.present()) {
    backend_.linear(normed, std::array{block.qkv, block.z, block.a, block.b}, std::array{qkv, z, a, b}, false);
  } else {
    backend_.linear(normed, std::array{block.q, block.k, block.v, block.z, block.a, block.b},
                    std::array{columns(qkv, 0, key_width), columns(qkv, key_width, key_width),
                               columns(qkv, 2 * key_width, width), z, a, b},
                    false);
  }
  backend_.gdn(gdn_args(block), qkv, z, a, b, top(act_.mixed, tokens, width));
  if (probe != nullptr) probe->gdn(layer, gdn_args(block), qkv, a, b);
}

std::vector<float> Model::read_kv(std::int32_t layer, std::span<const std::int32_t> block_table, std::int64_t tokens,
                                  bool value) {
  const auto* block = std::get_if<AttentionBlock>(&weights_.layers[static_cast<std::size_t>(layer)].mixer);
  if (block == nullptr) return {};
  return backend_.read_kv({block->kv_layer, &spec_.attention}, block_table, tokens, value);
}

std::vector<std::byte> Model::read_kv_raw(std::int32_t layer, std::span<const std::int32_t> block_table,
                                          std::int64_t tokens, bool value) {
  const auto* block = std::get_if<AttentionBlock>(&weights_.layers[static_cast<std::size_t>(layer)].mixer);
  if (block == nullptr) return {};
  return backend_.read_kv_raw({block->kv_layer, &spec_.attention}, block_table, tokens, value);
}

std::vector<float> Model::read_state(std::int32_t layer, std::int32_t slot) {
  const auto* block = std::get_if<GdnBlock>(&weights_.layers[static_cast<std::size_t>(layer)].mixer);
  return block == nullptr ? std::vector<float>{} : backend_.read_state(gdn_args(*block), slot);
}

std::vector<float> Model::read_conv_window(std::int32_t layer, std::int32_t slot) {
  const auto* block = std::get_if<GdnBlock>(&weights_.layers[static_cast<std::size_t>(layer)].mixer);
  return block == nullptr ? std::vector<float>{} : backend_.read_conv_window(gdn_args(*block), slot);
}

}  // namespace sterling::model
