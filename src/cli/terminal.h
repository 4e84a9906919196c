// The terminal side of `sterling chat`: lines from stdin, Ctrl-C as an event, text of a model made harmless for a terminal.
#pragma once

#include <string>
#include <string_view>

namespace sterling::cli {

// Ctrl-C while one of these lives is counted instead of ending the program. One at a time.
class InterruptWatch {
 public:
  InterruptWatch();
  ~InterruptWatch();
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;

  // Was there a Ctrl-C since the last clear()?
  static bool pending();
  static void clear();
  // Becomes readable with a Ctrl-C, whichever thread the signal met.
  int descriptor() const;
};

// Lines of standard input.
class LineReader {
 public:
  enum class Result { kLine, kEnd, kInterrupted, kFailed };
  // Waits for a line (without its newline), the end, or Ctrl-C. `watch` may be null.
  Result read(std::string& line, const InterruptWatch* watch);

 private:
  std::string buffer_;
  bool at_end_ = false;
};

// Replaces control characters (escape sequences that a model may write could move the cursor, rename the window, fill the
// clipboard) by U+FFFD; newlines and tabs stay, carriage returns go. Keeps state over a character that is cut in two.
class TerminalFilter {
 public:
  std::string filter(std::string_view text);

 private:
  bool after_c2_ = false;  // the first byte of a two-byte character that may be a C1 control
};

}  // namespace sterling::cli
