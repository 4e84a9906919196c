// Binding of a layer's experts: one tensor per expert and part, or all experts of a part in one tensor of three dimensions.
#include <array>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "model/dense_decoder.h"

namespace sterling::model {
namespace {

using backend::LinearId;
using backend::ProductInput;
using backend::RowSelection;

// gate, up or down of all experts.
struct Part {
  std::vector<quant::StoredWeight> weights;  // one per expert
  RowSelection rows;
};
using Parts = std::array<Part, 3>;

// Expert `index` of a tensor [experts, rows, columns], as a tensor of its own.
TensorView expert_slice(const TensorView& all, std::int64_t index) {
  TensorView one = all;
  one.name = fmt::format("{}[{}]", all.name, index);
  one.shape.erase(one.shape.begin());
  const std::size_t bytes = all.data.size() / static_cast<std::size_t>(all.shape[0]);
  one.data = all.data.subspan(static_cast<std::size_t>(index) * bytes, bytes);
  return one;
}

void add_fused(const TensorView* tensor, const RowSelection& rows, Part& part) {
  if (tensor == nullptr) return;
  part.rows = rows;
  for (std::int64_t e = 0; e < tensor->shape[0]; ++e) {
    part.weights.push_back(quant::plain_weight(expert_slice(*tensor, e)));
  }
}

// experts.gate_up_proj [experts, 2 * inner, hidden], gate rows first, and experts.down_proj [experts, hidden, inner].
Parts find_fused(const MoeSpec& moe, std::int64_t hidden, WeightBinder& binder, const std::string& module) {
  const std::int64_t inner = moe.intermediate;
  Parts parts;
  const TensorView* gate_up = binder.tensor(module + ".gate_up_proj", {moe.experts, 2 * inner, hidden});
  add_fused(gate_up, {2 * inner, 0, inner}, parts[0]);
  add_fused(gate_up, {2 * inner, inner, 2 * inner}, parts[1]);
  add_fused(binder.tensor(module + ".down_proj", {moe.experts, hidden, inner}), {}, parts[2]);
  return parts;
}

Parts find_single(const MoeSpec& moe, std::int64_t hidden, WeightBinder& binder, const std::string& module,
                  const MoeNames& names) {
  Parts parts;
  const std::array part_names{names.gate, names.up, names.down};
  for (std::int32_t e = 0; e < moe.experts; ++e) {
    for (std::size_t p = 0; p < parts.size(); ++p) {
      const bool down = p == 2;
      auto weight = binder.stored(fmt::format("{}.{}.{}", module, e, part_names[p]), down ? hidden : moe.intermediate,
                                  down ? moe.intermediate : hidden);
      if (weight) parts[p].weights.push_back(std::move(*weight));
    }
  }
  return parts;
}

// Of an expert, all parts are in use until it has been packed; where gate and up are one tensor, it counts once.
void plan_parts(const Parts& parts, WeightBinder& binder) {
  for (const Part& part : parts) binder.plan_linears(part.weights, part.rows, ProductInput::kActivation);
  for (std::size_t e = 0; e < parts[2].weights.size(); ++e) {
    std::int64_t bytes = 0;
    const std::byte* previous = nullptr;
    for (const Part& part : parts) {
      if (e >= part.weights.size() || part.weights[e].codes.data.data() == previous) continue;
      previous = part.weights[e].codes.data.data();
      bytes += part.weights[e].stored_bytes();
    }
    binder.plan_source(bytes);
  }
}

// Each part of all experts goes into one piece of memory; sources are let go expert by expert.
std::array<LinearId, 3> load_parts(const Parts& parts, WeightBinder& binder) {
  plan_parts(parts, binder);
  std::array<LinearId, 3> ids;
  backend::Backend* backend = binder.backend();
  if (backend == nullptr || !binder.intact()) return ids;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    auto id = backend->reserve_linears(parts[p].weights, parts[p].rows, ProductInput::kActivation);
    if (!id) {
      binder.fail("load_failed", id.error());
      return ids;
    }
    ids[p] = *id;
  }
  for (std::size_t e = 0; e < parts[0].weights.size(); ++e) {
    for (std::size_t p = 0; p < parts.size(); ++p) {
      const LinearId id{ids[p].index + static_cast<std::int32_t>(e)};
      if (Status status = backend->fill_linear(id, parts[p].weights[e], parts[p].rows); !status) {
        binder.fail("load_failed", status.error());
        return ids;
      }
      if (e == 0 || e + 1 == parts[p].weights.size()) binder.place(id, parts[p].weights[e], parts[p].rows);
    }
    for (const Part& part : parts) binder.loaded(part.weights[e]);
  }
  return ids;
}

MoeBlock bind_moe(const ModelSpec& spec, WeightBinder& binder, const std::string& module, const MoeNames& names) {
  const MoeSpec& moe = *spec.moe;
  const std::int64_t hidden = spec.hidden_size;
  const std::string experts = module + ".experts";
  MoeBlock block;
  block.router = binder.linear(module + ".gate.weight", moe.experts, hidden, ProductInput::kFp32);
  const bool fused = binder.has(experts + ".gate_up_proj") || binder.has(experts + ".down_proj");
  const Parts parts =
      fused ? find_fused(moe, hidden, binder, experts) : find_single(moe, hidden, binder, experts, names);
  const std::array<LinearId, 3> ids = load_parts(parts, binder);
  block.gate = ids[0];
  block.up = ids[1];
  block.down = ids[2];
  if (moe.shared_intermediate > 0) {
    block.shared = bind_mlp(spec, binder, module + ".shared_expert", moe.shared_intermediate);
    block.shared_gate = binder.linear(module + ".shared_expert_gate.weight", 1, hidden, ProductInput::kFp32);
  }
  return block;
}

}  // namespace

std::variant<MlpBlock, MoeBlock> bind_feed_forward(const ModelSpec& spec, WeightBinder& binder, std::int32_t index,
                                                   const std::string& layer, const MoeNames& names) {
  if (spec.has_experts(index)) return bind_moe(spec, binder, fmt::format("{}.{}", layer, names.module), names);
  return bind_mlp(spec, binder, layer + ".mlp", spec.intermediate_size);
}

}  // namespace sterling::model
