// `sterling audit --url A --url B`: the same prompts to two servers, cut at several depths, and what their greedy answers and logprobs tell.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/status.h"
#include "lab/audit_report.h"

namespace sterling::cli {

struct AuditServersOptions {
  std::string reference, other;  // URLs
  std::string prompts;           // a file
  std::optional<std::string> model;
  std::optional<std::string> api_key;
  std::int32_t samples = 0;  // places in each prompt
  std::int32_t steps = 0;    // tokens generated at each
  std::int32_t top = 0;      // alternatives asked for per token
  std::function<void(std::int64_t done, std::int64_t total)> progress;
  std::function<bool()> stopped;
};

// Two rows: the other server, and the reference asked again, which is the noise that batching and scheduling make on it.
Expected<lab::AuditReport> audit_servers(const AuditServersOptions& options);

}  // namespace sterling::cli
