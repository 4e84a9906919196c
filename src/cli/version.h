// The program's version, as `sterling --version`, /version and the log give it.
#pragma once

namespace sterling::cli {

inline constexpr const char* kVersion = "0.1.0";

}  // namespace sterling::cli
