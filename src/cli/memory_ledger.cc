#include "cli/memory_ledger.h"

#include <cstdlib>

#include <fmt/format.h>

#include "cli/console.h"
#include "model/activations.h"
#include "plan/memory.h"

namespace sterling::cli {
namespace {

constexpr std::int64_t kOnePerCent = 100;

bool differs(const LedgerRow& row) {
  return std::abs(row.actual - row.planned) > row.planned / kOnePerCent;
}

std::string text_of(const LedgerRow& row) {
  return fmt::format("{} {} planned, {} actual ({})", row.what, row.planned, row.actual, format_bytes(row.actual));
}

}  // namespace

std::int64_t workspace_bytes(const ModelSpec& spec, const backend::PoolOptions& pools,
                             const backend::InputWidths& widths, const kernels::KernelTable& kernels,
                             std::size_t threads) {
  std::int64_t bytes = backend::cpu_workspace(spec, pools, widths, kernels, threads).bytes();
  for (const std::int64_t columns : model::activation_columns(spec)) {
    bytes += backend::activation_bytes(pools.max_batch_tokens, columns);
  }
  return bytes;
}

std::vector<LedgerRow> read_ledger(const Runtime& runtime, const backend::PoolOptions& pools) {
  const ModelSpec& spec = runtime.model->spec();
  const backend::Backend& held = *runtime.backend;
  const std::int64_t kv = std::int64_t{pools.kv_blocks} * plan::kv_block_layer_bytes(spec, held.kv_format()) *
                          spec.count(LayerKind::kFullAttention);
  return {{"weights", runtime.weight_plan.packed_bytes, held.weights().bytes},
          {"KV pool", kv, held.kv_pool_bytes()},
          {"recurrent state", pools.state_slots * plan::state_bytes_per_sequence(spec), held.state_pool_bytes()},
          {"workspace", workspace_bytes(spec, pools, runtime.input_widths, *runtime.kernels, runtime.pool->threads()),
           held.workspace_bytes()}};
}

Status check_ledger(const std::vector<LedgerRow>& rows, const LogSink& log) {
  LedgerRow sum{"total", 0, 0};
  std::string text;
  for (const LedgerRow& row : rows) {
    sum.planned += row.planned;
    sum.actual += row.actual;
    if (row.planned != 0 || row.actual != 0) text += fmt::format("{}; ", text_of(row));
  }
  log(LogLevel::kInfo, fmt::format("Memory, bytes: {}{}", text, text_of(sum)));
  for (const LedgerRow& row : rows) {
    if (!differs(row)) continue;
    return make_error(ErrorCode::kInternal,
                      fmt::format("the memory ledger does not balance: {} planned {} bytes and holds {}, more than one "
                                  "per cent apart; this is a fault of the server, not of its settings",
                                  row.what, row.planned, row.actual),
                      "memory ledger");
  }
  return {};
}

}  // namespace sterling::cli
