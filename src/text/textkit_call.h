// What every call into the Rust library shares: the version check, the owned result and the error codes. Private to
// text/*.cc.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "textkit.h"

namespace sterling::text {

// Frees itself; hand result() to exactly one call.
class TextkitResult {
 public:
  TextkitResult() = default;
  ~TextkitResult() { tk_result_free(&result_); }
  TextkitResult(const TextkitResult&) = delete;
  TextkitResult& operator=(const TextkitResult&) = delete;

  tk_result* result() { return &result_; }
  bool ok() const { return result_.status == TK_OK; }
  std::string text() const {
    return result_.text_size == 0 ? std::string()
                                  : std::string(reinterpret_cast<const char*>(result_.text), result_.text_size);
  }
  const tk_result& raw() const { return result_; }
  Error error(std::string where) const;

 private:
  tk_result result_ = {};
};

inline const std::uint8_t* textkit_bytes(std::string_view text) {
  return reinterpret_cast<const std::uint8_t*>(text.data());
}
inline tk_text textkit_text(std::string_view text) {
  return tk_text{textkit_bytes(text), text.size()};
}

// Fails when the archive and the header are of different versions: a stale build.
Status textkit_ready();

// `text` as a JSON string, quotes included. It must be UTF-8.
void append_json_string(std::string_view text, std::string& out);

}  // namespace sterling::text
