#include "proof/proof.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "proof/kv_check.h"
#include "proof/kv_codec.h"
#include "proof/state_check.h"
#include "proof/weight_check.h"

namespace sterling::proof {
namespace {

// A prefill that ends inside a block, a second chunk that crosses its edge, single tokens. Below kernels' span of 512 tokens, so that a row has one
// maximum.
constexpr std::int32_t kSteps[] = {23, 12, 1, 1};

std::vector<std::int32_t> step_sizes(const model::ExecutorLimits& limits) {
  std::vector<std::int32_t> sizes;
  std::int32_t left = limits.max_sequence_tokens;
  for (const std::int32_t wanted : kSteps) {
    const std::int32_t size = std::min({wanted, limits.max_batch_tokens, left});
    if (size < 1) break;
    sizes.push_back(size);
    left -= size;
  }
  return sizes;
}

std::int32_t canary_tokens(const model::ExecutorLimits& limits) {
  std::int32_t total = 0;
  for (const std::int32_t size : step_sizes(limits)) total += size;
  return total;
}

// Spread over the vocabulary, no two neighbours alike; the same on every machine.
std::int32_t canary_token(std::int32_t position, std::int32_t vocab_size) {
  return static_cast<std::int32_t>((std::uint64_t{2654435761} * static_cast<std::uint64_t>(position + 1)) %
                                   static_cast<std::uint64_t>(vocab_size));
}

// One kind of check over all layers: counts, and the first failure.
struct Tally {
  std::int64_t done = 0;
  std::int64_t failed = 0;
  double largest = 0.0;
  std::string first;

  void take(const std::string& where, const std::string& fault) {
    ++done;
    if (fault.empty()) return;
    if (failed++ == 0) first = where + ": " + fault;
  }
  Finding finding(std::string check, const std::string& good) const {
    if (failed == 0) return {std::move(check), good, true};
    return {std::move(check), fmt::format("{} of {} failed; {}", failed, done, first), false};
  }
};

class Canary final : public model::ForwardProbe {
 public:
  Canary(model::Model& model, const plan::Precision& precision, const ProofSpace& space)
      : model_(model), backend_(model.backend()), precision_(precision), space_(space) {}

  void hidden(std::int32_t, std::vector<float>) override {}
  void mixer(std::int32_t, std::vector<float>) override {}
  void mlp(std::int32_t, std::vector<float>) override {}
  void router(std::int32_t, backend::RouterChoices) override {}
  void attention(std::int32_t layer, const backend::AttentionArgs& args, backend::Matrix q, backend::Matrix k,
                 backend::Matrix v, backend::Matrix out) override;
  void gdn(std::int32_t layer, const backend::GdnArgs& args, backend::Matrix qkv, backend::Matrix a,
           backend::Matrix b) override;

  void report(ProofReport& report) const;

 private:
  struct Layer {
    KvSide k;
    KvSide v;
  };
  Layer& layer_of(std::int32_t layer, std::int32_t kv_layer);
  bool rounds() const { return precision_.compute == "bf16"; }
  std::string read_rows(const Layer& state, std::span<const float> q, std::span<const float> out, std::int64_t rows);
  std::string flip(const Layer& state, const backend::AttentionArgs& args, backend::Matrix q, backend::Matrix out,
                   bool value);

  model::Model& model_;
  backend::Backend& backend_;
  const plan::Precision& precision_;
  const ProofSpace& space_;
  std::map<std::int32_t, Layer> layers_;
  std::map<std::int32_t, StateCheck> states_;
  Tally write_, read_, flip_, state_;
};

Canary::Layer& Canary::layer_of(std::int32_t layer, std::int32_t kv_layer) {
  const auto found = layers_.find(layer);
  if (found != layers_.end()) return found->second;
  const AttentionSpec& spec = model_.spec().attention;
  const auto scales_of = [kv_layer](plan::KvType type, const std::vector<std::vector<float>>& all) {
    return plan::needs_scales(type) && !all.empty() ? all[static_cast<std::size_t>(kv_layer)] : std::vector<float>{};
  };
  const plan::KvFormat& kv = precision_.kv;
  return layers_
      .emplace(layer, Layer{KvSide(kv.k, spec, scales_of(kv.k, precision_.kv_scales.k)),
                            KvSide(kv.v, spec, scales_of(kv.v, precision_.kv_scales.v))})
      .first->second;
}

// The first, a middle and the last token of the step, every head.
std::string Canary::read_rows(const Layer& state, std::span<const float> q, std::span<const float> out,
                              std::int64_t rows) {
  const AttentionSpec& spec = model_.spec().attention;
  const std::int64_t group = spec.heads / spec.kv_heads;
  const std::int64_t before = state.k.tokens() - rows;
  std::vector<std::int64_t> chosen = {0, rows / 2, rows - 1};
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  const auto dim = static_cast<std::size_t>(spec.head_dim);
  for (const std::int64_t row : chosen) {
    for (std::int64_t head = 0; head < spec.heads; ++head) {
      const std::size_t at = static_cast<std::size_t>(row * spec.heads + head) * dim;
      const ExactRow exact = exact_row(spec, q.subspan(at, dim), rounds(), state.k.decoded(), state.v.decoded(),
                                       head / group, state.k.tokens(), before + row + 1);
      for (std::size_t d = 0; d < dim; ++d) {
        const double error = std::fabs(static_cast<double>(out[at + d]) - exact.out[d]);
        read_.largest = std::max(read_.largest, error / exact.bound[d]);
        if (error <= exact.bound[d]) continue;
        return fmt::format(
            "head {}, token {}, dim {}: {:.9g} from the stored bytes, the kernel returned {:.9g}, bound {:.1e}", head,
            before + row, d, exact.out[d], out[at + d], exact.bound[d]);
      }
    }
  }
  return {};
}

// Turns the sign of the stored element whose turn changes the last token's first head of some KV head most.
std::string Canary::flip(const Layer& state, const backend::AttentionArgs& args, backend::Matrix q, backend::Matrix out,
                         bool value) {
  const AttentionSpec& spec = *args.spec;
  const std::int64_t tokens = state.k.tokens();
  const std::int64_t group = spec.heads / spec.kv_heads;
  const auto dim = static_cast<std::size_t>(spec.head_dim);
  const std::vector<float> query = backend_.read(q);
  const std::vector<float> original = backend_.read(out);
  const std::int64_t kv_head = spec.kv_heads - 1;
  const std::size_t at = static_cast<std::size_t>((q.rows - 1) * spec.heads + kv_head * group) * dim;
  const std::span<const float> row = std::span(query).subspan(at, dim);
  const ExactRow exact = exact_row(spec, row, rounds(), state.k.decoded(), state.v.decoded(), kv_head, tokens, tokens);
  const auto element = [&](std::int64_t token, std::size_t d) {
    return static_cast<std::size_t>(kv_head * tokens + token) * dim + d;
  };
  std::int64_t token = 0;
  std::size_t best = 0;
  double most = -1.0;
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::size_t d = 0; d < dim; ++d) {
      const double p = exact.weight[static_cast<std::size_t>(t)];
      const double effect =
          value ? p * std::fabs(state.v.decoded()[element(t, d)])
                : p * (1.0 - p) * std::fabs(static_cast<double>(row[d]) * state.k.decoded()[element(t, d)]);
      if (effect > most) {
        most = effect;
        token = t;
        best = d;
      }
    }
  }
  std::vector<double> changed = value ? state.v.decoded() : state.k.decoded();
  changed[element(token, best)] = -changed[element(token, best)];
  const ExactRow predicted = exact_row(spec, row, rounds(), value ? state.k.decoded() : changed,
                                       value ? changed : state.v.decoded(), kv_head, tokens, tokens);
  const plan::KvType type = value ? precision_.kv.v : precision_.kv.k;
  const std::uint32_t sign = 1U << (8 * element_bytes(type) - 1);
  const auto turn = [&] {
    backend_.poke_kv(args, space_.blocks, token, static_cast<std::int32_t>(kv_head), static_cast<std::int32_t>(best),
                     value, sign);
    backend_.attention(args, q, out);
    return backend_.read(out);
  };
  const std::vector<float> flipped = turn();
  const std::vector<float> restored = turn();
  if (restored != original) return "flipped there and back, the kernel no longer returns the same bits";
  bool seen = false;
  const std::string place = fmt::format("{} head {}, token {}, dim {}", value ? "V" : "K", kv_head, token, best);
  for (std::size_t d = 0; d < dim; ++d) {
    const double error = std::fabs(static_cast<double>(flipped[at + d]) - predicted.out[d]);
    if (error > predicted.bound[d]) {
      return fmt::format("{} flipped: predicted {:.9g}, the kernel returned {:.9g}, bound {:.1e}", place,
                         predicted.out[d], flipped[at + d], predicted.bound[d]);
    }
    seen = seen || std::fabs(predicted.out[d] - exact.out[d]) > 2.0 * (predicted.bound[d] + exact.bound[d]);
  }
  // A canary on which no flip of K shows (one key, or a K of zeros) proves nothing here; earlier and later layers and V do.
  return seen || !value || tokens == 1 ? std::string()
                                       : place + " flipped: the predicted change is too small to be told from rounding";
}

void Canary::attention(std::int32_t layer, const backend::AttentionArgs& args, backend::Matrix q, backend::Matrix k,
                       backend::Matrix v, backend::Matrix out) {
  const std::string where = fmt::format("layer {}", layer);
  Layer& state = layer_of(layer, args.kv_layer);
  const std::string k_fault = state.k.compare(backend_, args, space_.blocks, backend_.read(k), false);
  const std::string v_fault = state.v.compare(backend_, args, space_.blocks, backend_.read(v), true);
  write_.take(where + " K", k_fault);
  write_.take(where + " V", v_fault);
  if (!k_fault.empty() || !v_fault.empty())
    return;  // what is read would be judged against bytes already known to be wrong
  read_.take(where, read_rows(state, backend_.read(q), backend_.read(out), q.rows));
  if (q.rows > 1) return;
  for (const bool value : {false, true}) flip_.take(where, flip(state, args, q, out, value));
}

void Canary::gdn(std::int32_t layer, const backend::GdnArgs& args, backend::Matrix qkv, backend::Matrix a,
                 backend::Matrix b) {
  const auto found = states_.find(layer);
  StateCheck& check =
      found != states_.end()
          ? found->second
          : states_.emplace(layer, StateCheck(*args.spec, layer % args.spec->value_heads)).first->second;
  state_.take(fmt::format("layer {}", layer),
              check.compare(backend_, args, space_.state_slot, backend_.read(qkv), backend_.read(a), backend_.read(b)));
  state_.largest = std::max(state_.largest, check.largest_error());
}

void Canary::report(ProofReport& report) const {
  if (write_.done > 0) {
    std::int64_t elements = 0;
    Tally width = write_;
    for (const auto& [layer, state] : layers_) {
      for (const bool value : {false, true}) {
        const KvSide& side = value ? state.v : state.k;
        const plan::KvType type = value ? precision_.kv.v : precision_.kv.k;
        elements += side.compared();
        width.largest = std::max(width.largest, side.largest_error());
        if (side.largest_error() > rounding_unit(type)) {
          width.take(fmt::format("layer {} {}", layer, value ? "V" : "K"),
                     fmt::format("largest rounding error {:.1e}, {} has {:.1e}", side.largest_error(),
                                 plan::kv_type_name(type), rounding_unit(type)));
        }
        if (!side.needs_width()) {
          width.take(fmt::format("layer {} {}", layer, value ? "V" : "K"),
                     fmt::format("every stored value would fit a narrower type than {}", plan::kv_type_name(type)));
        }
      }
    }
    report.findings.push_back(
        width.finding("kv.write", fmt::format("{} comparisons of K and V elements: each is the {} code of what its "
                                              "layer produced; largest relative error {:.2e}",
                                              elements, plan::kv_format_name(precision_.kv), width.largest)));
    report.findings.push_back(read_.finding(
        "kv.read",
        fmt::format(
            "attention from the stored bytes in double agrees in {} steps of layers; largest error {:.2f} of its bound",
            read_.done, read_.largest)));
    report.findings.push_back(flip_.finding(
        "kv.flip", fmt::format("{} flipped elements changed attention as predicted, and back to the bit", flip_.done)));
  }
  if (state_.done > 0) {
    report.findings.push_back(
        state_.finding("state", fmt::format("recurrent state in double agrees in {} steps of layers to {:.1e} of its "
                                            "largest element; windows are equal",
                                            state_.done, state_.largest)));
  }
}

Finding check_size(model::Model& model, const plan::Precision& precision) {
  backend::Backend& backend = model.backend();
  const ModelSpec& spec = model.spec();
  if (backend.kv_format() != precision.kv) {
    return {"kv.size",
            fmt::format("the pool is {}, declared is {}", plan::kv_format_name(backend.kv_format()),
                        plan::kv_format_name(precision.kv)),
            false};
  }
  std::int64_t expected = 0;
  const std::int64_t tokens = std::int64_t{model.limits().kv_blocks} * model.limits().block_tokens;
  const std::int64_t heads = std::int64_t{spec.count(LayerKind::kFullAttention)} * spec.attention.kv_heads;
  for (const bool value : {false, true}) {
    const plan::KvType type = value ? precision.kv.v : precision.kv.k;
    // V keeps its dimensions in columns of 16, the last one filled up with zeros.
    const std::int64_t dim = value ? (spec.attention.head_dim + 15) / 16 * 16 : spec.attention.head_dim;
    const std::int64_t scale = type == plan::KvType::kFp8E4m3Token ? 4 : 0;
    expected += tokens * heads * (dim * static_cast<std::int64_t>(element_bytes(type)) + scale);
  }
  const std::int64_t actual = backend.kv_pool_bytes();
  if (actual == expected) {
    return {"kv.size", fmt::format("{} bytes for {} tokens in {}", actual, tokens, plan::kv_format_name(precision.kv)),
            true};
  }
  return {"kv.size",
          fmt::format("the pool has {} bytes; {} tokens in {} take {}", actual, tokens,
                      plan::kv_format_name(precision.kv), expected),
          false};
}

Finding check_weights(const model::Model& model, const backend::Backend& backend) {
  Tally tally;
  std::int64_t compared = 0;
  for (const auto& placed : model.placed()) {
    const WeightFault fault = check_weight(backend, placed);
    compared += fault.compared;
    tally.take("weights", fault.what);
  }
  return tally.finding("weights",
                       fmt::format("{} elements of {} packed matrices are the file's values", compared, tally.done));
}

}  // namespace

bool ProofReport::passed() const {
  return std::all_of(findings.begin(), findings.end(), [](const Finding& f) { return f.passed; });
}

std::int32_t blocks_needed(const model::ExecutorLimits& limits) {
  return (canary_tokens(limits) + limits.block_tokens - 1) / limits.block_tokens;
}

Expected<ProofReport> prove(model::Model& model, const plan::Precision& precision, const ProofSpace& space) {
  ProofReport report;
  const bool has_kv = model.spec().count(LayerKind::kFullAttention) > 0;
  if (has_kv) {
    report.findings.push_back(check_size(model, precision));
    // With another type or size than declared there is nothing to decode by.
    if (!report.passed()) return report;
  }
  Canary canary(model, precision, space);
  const model::ExecutorLimits& limits = model.limits();
  std::vector<float> logits(static_cast<std::size_t>(limits.vocab_size));
  std::int64_t not_finite = 0;
  std::int32_t position = 0;
  const std::vector<std::int32_t> sizes = step_sizes(limits);
  for (const std::int32_t size : sizes) {
    std::vector<std::int32_t> tokens;
    for (std::int32_t i = 0; i < size; ++i) tokens.push_back(canary_token(position + i, limits.vocab_size));
    const std::int32_t last = size - 1;
    SequenceSlice slice;
    slice.tokens = tokens;
    slice.start_position = position;
    slice.block_table = space.blocks;
    slice.state_slot = space.state_slot;
    slice.logit_rows = std::span(&last, 1);
    if (Status status = model.forward(BatchView{std::span(&slice, 1)}, logits, &canary); !status) return status.error();
    not_finite += std::count_if(logits.begin(), logits.end(), [](float x) { return !std::isfinite(x); });
    position += size;
  }
  canary.report(report);
  report.findings.push_back(check_weights(model, model.backend()));
  const std::size_t all = logits.size() * sizes.size();
  report.findings.push_back(
      {"logits",
       not_finite == 0 ? fmt::format("{} logits are finite", all)
                       : fmt::format("{} of {} logits are not finite; the weights are unusable", not_finite, all),
       not_finite == 0});
  return report;
}

boost::json::object proof_json(const ProofReport& report) {
  boost::json::array checks;
  for (const Finding& finding : report.findings) {
    checks.push_back(
        boost::json::object{{"check", finding.check}, {"passed", finding.passed}, {"detail", finding.detail}});
  }
  return {{"passed", report.passed()}, {"checks", std::move(checks)}};
}

}  // namespace sterling::proof
