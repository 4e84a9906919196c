#include "text/textkit_call.h"

#include <utility>

namespace sterling::text {

Error TextkitResult::error(std::string where) const {
  ErrorCode code = ErrorCode::kInternal;
  switch (result_.status) {
    case TK_INVALID: code = ErrorCode::kInvalidArgument; break;
    case TK_CORRUPT: code = ErrorCode::kCorrupt; break;
    case TK_UNSUPPORTED: code = ErrorCode::kUnsupported; break;
    case TK_EXHAUSTED: code = ErrorCode::kResourceExhausted; break;
    default: break;
  }
  return make_error(code, text(), std::move(where));
}

Status textkit_ready() {
  const std::uint32_t found = tk_abi_version();
  if (found == TK_ABI_VERSION) return {};
  return make_error(ErrorCode::kInternal, "the textkit library has interface version " + std::to_string(found) +
                                              ", this program was built for " + std::to_string(TK_ABI_VERSION));
}

void append_json_string(std::string_view text, std::string& out) {
  static constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += "\\u00";
      out += kHex[static_cast<unsigned char>(c) >> 4];
      out += kHex[c & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

}  // namespace sterling::text
