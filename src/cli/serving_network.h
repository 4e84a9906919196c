// What a server needs before its sockets: the keys it asks for, and a port that is free.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "config/serve_settings.h"

namespace sterling::cli {

// Of --api-key or --api-key-file (one per line, # starts a comment); none: the API is open to whoever reaches the port.
Expected<std::vector<std::string>> read_keys(const config::ServeOptions& options);

// A taken port is told before minutes of loading; the real bind comes after it and reports whatever else may be wrong.
Status check_port(const std::string& host, std::uint16_t port);

}  // namespace sterling::cli
