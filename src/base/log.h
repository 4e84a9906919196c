// The log as an injected sink: modules below cli/ report through it and never print. Thread-safe if the sink is.
#pragma once

#include <functional>
#include <string_view>

namespace sterling {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

using LogSink = std::function<void(LogLevel, std::string_view message)>;

}  // namespace sterling
