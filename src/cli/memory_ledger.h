// Planned and actual memory of a start, side by side: what headers and settings promised, and what the backend holds after allocation. They come from the same
// formulas, so a difference means that one of them is wrong, and the start fails.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/workspace.h"
#include "base/log.h"
#include "base/status.h"
#include "cli/runtime.h"

namespace sterling::cli {

struct LedgerRow {
  std::string what;  // "weights", "KV pool", "recurrent state", "workspace"
  std::int64_t planned = 0;
  std::int64_t actual = 0;
};

// What the backend allocates beside weights and pools, activations included.
std::int64_t workspace_bytes(const ModelSpec& spec, const backend::PoolOptions& pools,
                             const backend::InputWidths& widths, const kernels::KernelTable& kernels,
                             std::size_t threads);

// After the model has been configured.
std::vector<LedgerRow> read_ledger(const Runtime& runtime, const backend::PoolOptions& pools);

// Logs the rows and their sum. kInternal: a row is more than one per cent off.
Status check_ledger(const std::vector<LedgerRow>& rows, const LogSink& log);

}  // namespace sterling::cli
