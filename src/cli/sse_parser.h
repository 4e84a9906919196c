// Server-sent events, the client's half: bytes in as they arrive, complete events out. Lines end in LF, CR or CRLF; "data" lines
// of one event are joined by newlines; comments and other fields are skipped, as the WHATWG algorithm has it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace sterling::cli {

class SseParser {
 public:
  static constexpr std::size_t kMaxEventBytes = std::size_t{16} << 20;

  // The data of every event that `bytes` completes, in order. kCorrupt: an event beyond kMaxEventBytes.
  Expected<std::vector<std::string>> feed(std::string_view bytes);

 private:
  void end_line(std::vector<std::string>& events);

  std::string line_;
  std::string data_;
  bool has_data_ = false;
  bool after_cr_ = false;   // a LF now belongs to the line end before
  bool first_line_ = true;  // a byte order mark may stand before it
};

}  // namespace sterling::cli
