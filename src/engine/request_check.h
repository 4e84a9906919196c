// What submit() refuses, before anything of the request is kept.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "engine/engine.h"

namespace sterling::engine {

// Every range of SamplingParams and TokenRequest, and the model's and the pool's limits. kInvalidArgument; `where` is the field.
Status check_request(const TokenRequest& request, const model::ExecutorLimits& limits);

// KV blocks that the request holds at its longest. The last token is never fed back, so it needs no room.
std::int64_t worst_case_blocks(const TokenRequest& request, const model::ExecutorLimits& limits);

}  // namespace sterling::engine
