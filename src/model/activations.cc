#include "model/activations.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace sterling::model {
namespace {

using Field = backend::Matrix Activations::*;

// The one list of buffers and widths.
std::vector<std::pair<Field, std::int64_t>> widths(const ModelSpec& spec) {
  const AttentionSpec& attention = spec.attention;
  const std::int64_t q_width = std::int64_t{attention.heads} * attention.head_dim;
  const std::int64_t kv_width = std::int64_t{attention.kv_heads} * attention.head_dim;
  std::vector<std::pair<Field, std::int64_t>> list = {{&Activations::residual, spec.hidden_size},
                                                      {&Activations::normed, spec.hidden_size},
                                                      {&Activations::block, spec.hidden_size}};
  const std::int64_t inner = std::max(spec.intermediate_size, spec.moe ? spec.moe->shared_intermediate : 0);
  if (inner > 0) list.insert(list.end(), {{&Activations::mlp_gate, inner}, {&Activations::mlp_up, inner}});
  if (spec.moe) list.emplace_back(&Activations::router, spec.moe->experts);
  if (spec.moe && spec.moe->shared_intermediate > 0) {
    list.insert(list.end(), {{&Activations::shared, spec.hidden_size}, {&Activations::shared_gate, 1}});
  }
  std::int64_t mixed = 0;
  if (spec.count(LayerKind::kFullAttention) > 0) {
    mixed = q_width;
    list.insert(list.end(), {{&Activations::q, q_width}, {&Activations::k, kv_width}, {&Activations::v, kv_width}});
    if (attention.output_gate) list.emplace_back(&Activations::gate, q_width);
  }
  if (spec.count(LayerKind::kLinearAttention) > 0) {
    const GdnSpec& gdn = *spec.gdn;
    const std::int64_t value_width = std::int64_t{gdn.value_heads} * gdn.value_dim;
    mixed = std::max(mixed, value_width);
    list.insert(list.end(), {{&Activations::qkv, gdn.conv_channels()},
                             {&Activations::z, value_width},
                             {&Activations::a, gdn.value_heads},
                             {&Activations::b, gdn.value_heads}});
  }
  list.emplace_back(&Activations::mixed, mixed);
  return list;
}

}  // namespace

Expected<Activations> Activations::allocate(backend::Backend& backend, const ModelSpec& spec, std::int64_t tokens) {
  Activations activations;
  for (const auto& [field, width] : widths(spec)) {
    auto buffer = backend.allocate(tokens, width);
    if (!buffer) return buffer.error();
    activations.*field = *buffer;
  }
  return activations;
}

std::int64_t Activations::floats_per_token(const ModelSpec& spec) {
  std::int64_t floats = 0;
  for (const auto& [field, width] : widths(spec)) floats += width;
  if (spec.moe) floats += std::int64_t{spec.moe->experts_per_token} * spec.moe->intermediate;
  return floats;
}

std::vector<std::int64_t> activation_columns(const ModelSpec& spec) {
  std::vector<std::int64_t> columns = {spec.hidden_size};
  for (const auto& [field, width] : widths(spec)) columns.push_back(width);
  return columns;
}

backend::Matrix top(backend::Matrix buffer, std::int64_t rows) {
  return top(buffer, rows, buffer.cols);
}

backend::Matrix columns(backend::Matrix matrix, std::int64_t begin, std::int64_t cols) {
  return backend::Matrix{matrix.data + begin, matrix.rows, cols, matrix.ld};
}

backend::Matrix top(backend::Matrix buffer, std::int64_t rows, std::int64_t cols) {
  return backend::Matrix{buffer.data, rows, cols, buffer.ld};
}

}  // namespace sterling::model
