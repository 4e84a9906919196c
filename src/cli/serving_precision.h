// The precision of a server: resolved before weights are loaded, printed, logged, served.
#pragma once

#include <string>

#include <boost/json.hpp>

#include "base/log.h"
#include "base/status.h"
#include "cli/runtime.h"
#include "config/serve_settings.h"
#include "lab/inspect.h"
#include "plan/manifest.h"
#include "plan/precision.h"
#include "server/precision_facts.h"

namespace sterling::cli {

struct ServingPrecision {
  lab::Inspection inspection;
  plan::Precision precision;
  boost::json::object manifest;

  std::string hash() const { return std::string(manifest.at("hash").get_string()); }
};

// The name that the API calls the model by.
std::string served_name(const config::ServeOptions& options);

// Everything that can be refused without reading a weight: the checkpoint, threads, kernels, and what precision comes to.
struct OpenedServing {
  Runtime runtime;
  ServingPrecision precision;
};
Expected<OpenedServing> open_serving(const config::ServeOptions& options);

// What `serve --dry-run` prints: the table, the manifest's hash, what the metadata wished, and every warning.
std::string precision_text(const ServingPrecision& precision);

// The table line by line, the manifest as one JSON line, what the metadata wished, and every warning.
void log_precision(const ServingPrecision& precision, const LogSink& log);

// For the server's header, /ready and /metrics. The runtime must outlive the result.
server::PrecisionFacts precision_facts(const ServingPrecision& precision, const Runtime& runtime);

}  // namespace sterling::cli
