#include "cli/golden_subject.h"

#include <algorithm>
#include <numeric>

namespace sterling::cli {
namespace {

// Collects a step's layers; rows of later steps go behind those of earlier ones.
class Recorder final : public model::ForwardProbe {
 public:
  explicit Recorder(std::int32_t layers)
      : hidden_(static_cast<std::size_t>(layers) + 2),
        mixer_(static_cast<std::size_t>(layers)),
        mlp_(static_cast<std::size_t>(layers)),
        experts_(static_cast<std::size_t>(layers)),
        weights_(static_cast<std::size_t>(layers)),
        margins_(static_cast<std::size_t>(layers)),
        magnitudes_(static_cast<std::size_t>(layers)) {}

  void hidden(std::int32_t index, std::vector<float> values) override { append(hidden_, index, values); }
  void mixer(std::int32_t layer, std::vector<float> values) override { append(mixer_, layer, values); }
  void mlp(std::int32_t layer, std::vector<float> values) override { append(mlp_, layer, values); }
  void router(std::int32_t layer, backend::RouterChoices choices) override {
    append(experts_, layer, choices.experts);
    append(weights_, layer, choices.weights);
    append(margins_, layer, choices.margins);
    append(magnitudes_, layer, choices.magnitudes);
  }

  void move_into(lab::GoldenRun& run) {
    join(hidden_, run.hidden);
    join(mixer_, run.mixer);
    join(mlp_, run.mlp);
    join(experts_, run.router_experts);
    join(weights_, run.router_weights);
    join(margins_, run.router_margins);
    join(magnitudes_, run.router_magnitudes);
  }

 private:
  template <typename T>
  using Rows = std::vector<std::vector<T>>;
  template <typename T>
  static void append(Rows<T>& rows, std::int32_t index, const std::vector<T>& values) {
    auto& target = rows[static_cast<std::size_t>(index)];
    target.insert(target.end(), values.begin(), values.end());
  }
  template <typename T>
  static void join(const Rows<T>& rows, std::vector<T>& out) {
    for (const auto& row : rows) out.insert(out.end(), row.begin(), row.end());
  }

  Rows<float> hidden_, mixer_, mlp_;
  Rows<std::int32_t> experts_;  // empty for layers without
  Rows<float> weights_, margins_, magnitudes_;
};

void append(std::vector<float>& out, const std::vector<float>& values) {
  out.insert(out.end(), values.begin(), values.end());
}

// [kernel - 1][channels] → [channels][kernel - 1]
std::vector<float> transpose_window(const std::vector<float>& window, std::size_t channels) {
  std::vector<float> result(window.size());
  if (channels == 0) return result;
  const std::size_t taps = window.size() / channels;
  for (std::size_t j = 0; j < taps; ++j) {
    for (std::size_t c = 0; c < channels; ++c) result[c * taps + j] = window[j * channels + c];
  }
  return result;
}

}  // namespace

Expected<std::unique_ptr<ModelSubject>> ModelSubject::create(Runtime runtime, std::int32_t max_tokens,
                                                             std::int32_t chunk, std::optional<plan::KvFormat> kv,
                                                             plan::KvScales scales) {
  std::unique_ptr<ModelSubject> subject(new ModelSubject(std::move(runtime)));
  backend::PoolOptions pools;
  pools.max_batch_tokens = chunk > 0 ? std::min(chunk, max_tokens) : max_tokens;
  pools.max_batch_slices = 1;
  pools.max_sequence_tokens = max_tokens;
  pools.state_slots = 1;
  pools.kv_blocks = (max_tokens + plan::kBlockTokens - 1) / plan::kBlockTokens;
  pools.kv = kv;
  pools.kv_scales = std::move(scales);
  if (Status status = subject->runtime_.model->configure(pools); !status) return status.error();
  subject->chunk_ = chunk > 0 ? chunk : max_tokens;
  subject->block_table_.resize(static_cast<std::size_t>(pools.kv_blocks));
  // Not in order, so that a kernel that ignores the table is found out.
  std::iota(subject->block_table_.rbegin(), subject->block_table_.rend(), 0);
  return subject;
}

Status ModelSubject::step(std::span<const std::int32_t> tokens, std::int32_t start, std::span<const std::int32_t> rows,
                          std::span<float> logits, model::ForwardProbe* probe) {
  SequenceSlice slice;
  slice.tokens = tokens;
  slice.start_position = start;
  slice.block_table = block_table_;
  slice.state_slot = 0;
  slice.logit_rows = rows;
  return runtime_.model->forward(BatchView{std::span(&slice, 1)}, logits, probe);
}

Expected<lab::GoldenRun> ModelSubject::run(std::span<const std::int32_t> tokens, bool want_internals) {
  model::Model& model = *runtime_.model;
  const ModelSpec& spec = model.spec();
  const auto n = static_cast<std::int32_t>(tokens.size());
  lab::GoldenRun run;
  run.logits.resize(static_cast<std::size_t>(n) * static_cast<std::size_t>(spec.vocab_size));
  Recorder recorder(spec.layer_count());
  for (std::int32_t begin = 0; begin < n; begin += chunk_) {
    const std::int32_t count = std::min(chunk_, n - begin);
    std::vector<std::int32_t> rows(static_cast<std::size_t>(count));
    std::iota(rows.begin(), rows.end(), 0);
    const std::span<float> logits =
        std::span(run.logits)
            .subspan(static_cast<std::size_t>(begin) * static_cast<std::size_t>(spec.vocab_size),
                     static_cast<std::size_t>(count) * static_cast<std::size_t>(spec.vocab_size));
    const Status status = step(tokens.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count)), begin,
                               rows, logits, want_internals ? &recorder : nullptr);
    if (!status) return status.error();
  }
  if (!want_internals) return run;
  recorder.move_into(run);
  for (std::int32_t layer = 0; layer < spec.layer_count(); ++layer) {
    append(run.k, model.read_kv(layer, block_table_, n, false));
    append(run.v, model.read_kv(layer, block_table_, n, true));
    const plan::KvFormat format = runtime_.backend->kv_format();
    for (const bool value : {false, true}) {
      if ((value ? format.v : format.k) != plan::KvType::kFp8E4m3) continue;
      const auto codes = model.read_kv_raw(layer, block_table_, n, value);
      auto& all = value ? run.v_codes : run.k_codes;
      all.insert(all.end(), codes.begin(), codes.end());
    }
    append(run.gdn_state, model.read_state(layer, 0));
    if (spec.gdn) {
      append(run.gdn_conv,
             transpose_window(model.read_conv_window(layer, 0), static_cast<std::size_t>(spec.gdn->conv_channels())));
    }
  }
  return run;
}

Expected<std::vector<std::int32_t>> ModelSubject::greedy(std::span<const std::int32_t> tokens, std::int32_t steps) {
  const auto vocab = static_cast<std::size_t>(runtime_.model->spec().vocab_size);
  std::vector<float> logits(vocab);
  std::vector<std::int32_t> result;
  std::int32_t position = 0;
  const auto n = static_cast<std::int32_t>(tokens.size());
  for (; position < n;) {
    const std::int32_t count = std::min(chunk_, n - position);
    const std::int32_t last = count - 1;
    const bool wanted = position + count == n;
    const Status status =
        step(tokens.subspan(static_cast<std::size_t>(position), static_cast<std::size_t>(count)), position,
             std::span(&last, wanted ? 1 : 0), std::span(logits).first(wanted ? vocab : 0), nullptr);
    if (!status) return status.error();
    position += count;
  }
  while (true) {
    const auto best = static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    result.push_back(best);
    if (static_cast<std::int32_t>(result.size()) == steps) return result;
    const std::int32_t row = 0;
    const Status status = step(std::span(&best, 1), position, std::span(&row, 1), logits, nullptr);
    if (!status) return status.error();
    ++position;
  }
}

}  // namespace sterling::cli
