// A whole server in this process: checkpoint, model, engine, service, sockets. `serve` runs it until a signal, `chat MODEL` talks to it.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "base/log.h"
#include "base/status.h"
#include "cli/command.h"
#include "config/serve_settings.h"

namespace sterling::cli {

// Turns options.model, which may be a hub id, into the path to load; a hub id becomes the name to serve where none is given.
Status find_model(config::ServeOptions& options, const Invocation& invocation);

class ServingHost {
 public:
  virtual ~ServingHost() = default;  // stops at once
  // "127.0.0.1:8000"
  virtual const std::string& address() const = 0;
  virtual const std::string& model_name() const = 0;
  // Refuses new requests, lets running ones finish for up to `drain`, closes. Returns how many were cut off.
  virtual std::size_t stop(std::chrono::milliseconds drain) = 0;
};

// Loads the model, opens the port and says ready (one `ready …` line in the log). `settings_json` is served at /server_info.
Expected<std::unique_ptr<ServingHost>> start_serving(const config::ServeOptions& options, std::string settings_json,
                                                     LogSink log);

}  // namespace sterling::cli
