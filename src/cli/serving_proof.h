// The proof at start and on request (proof/proof.h), and how it is told.
#pragma once

#include <string>
#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "cli/runtime.h"
#include "engine/engine.h"
#include "plan/precision.h"

namespace sterling::cli {

// Before anything else uses the pools. One log line per check. kVerification: something in memory is not what the table says.
Status prove_start(Runtime& runtime, const plan::Precision& precision, const LogSink& log);

// Between the steps of a live engine: HTTP status and document. 200 passed, 500 not, 503 too busy or stopping.
std::pair<int, std::string> prove_live(Runtime& runtime, engine::Engine& engine, const plan::Precision& precision,
                                       const LogSink& log);

}  // namespace sterling::cli
