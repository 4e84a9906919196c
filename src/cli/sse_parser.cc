#include "cli/sse_parser.h"

#include <utility>

namespace sterling::cli {

void SseParser::end_line(std::vector<std::string>& events) {
  std::string_view line = line_;
  if (std::exchange(first_line_, false) && line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
  if (line.empty()) {
    if (has_data_) events.push_back(std::move(data_));
    data_.clear();
    has_data_ = false;
  } else if (line == "data" || line.starts_with("data:")) {
    line.remove_prefix(line.size() > 4 ? 5 : 4);
    if (line.starts_with(' ')) line.remove_prefix(1);
    if (has_data_) data_ += '\n';
    data_ += line;
    has_data_ = true;
  }
  line_.clear();
}

Expected<std::vector<std::string>> SseParser::feed(std::string_view bytes) {
  std::vector<std::string> events;
  for (const char c : bytes) {
    const bool continues_crlf = std::exchange(after_cr_, false) && c == '\n';
    if (continues_crlf) continue;
    if (c == '\n' || c == '\r') {
      after_cr_ = c == '\r';
      end_line(events);
    } else if (line_.size() + data_.size() >= kMaxEventBytes) {
      return make_error(ErrorCode::kCorrupt, "the server sent an event of more than 16 MiB");
    } else {
      line_ += c;
    }
  }
  return events;
}

}  // namespace sterling::cli
