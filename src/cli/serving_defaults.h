// How a checkpoint's own files say that its model is talked to: tokenizer, chat template, sampling defaults, end of turn.
#pragma once

#include "base/log.h"
#include "base/status.h"
#include "cli/runtime.h"
#include "config/serve_settings.h"
#include "serving/service.h"

namespace sterling::cli {

// Everything but the names to serve under. The model is loaded and configured. A checkpoint without tokenizer or template is told in the log
// and serves what can be served without.
Expected<serving::ServiceOptions> make_service_options(const config::ServeOptions& options, const Runtime& runtime,
                                                       const LogSink& log);

}  // namespace sterling::cli
