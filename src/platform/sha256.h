// SHA-256 of bytes in memory, as lower-case hexadecimal: 64 digits. Thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace sterling::platform {

std::string sha256(std::string_view bytes);

}  // namespace sterling::platform
