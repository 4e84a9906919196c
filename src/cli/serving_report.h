// The lines of a server's start-up log that say what was loaded: weights by stored format, what was left out, what the checkpoint's
// metadata claims otherwise, and the pools.
#pragma once

#include "backend/backend.h"
#include "base/log.h"
#include "cli/runtime.h"
#include "lab/inspect.h"

namespace sterling::cli {

void log_model(const Runtime& runtime, const backend::PoolOptions& pools, const lab::Inspection& inspection,
               const LogSink& log);

}  // namespace sterling::cli
