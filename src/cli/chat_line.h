// A line that somebody types into `sterling chat`: a message, or a command that starts with a slash. "//…" sends a message that
// starts with one slash.
#pragma once

#include <string>
#include <string_view>

namespace sterling::cli {

enum class ChatLineKind { kEmpty, kMessage, kReset, kSystem, kHelp, kQuit, kUnknown };

struct ChatLine {
  ChatLineKind kind = ChatLineKind::kEmpty;
  std::string text;     // the message; the argument of /system; an unknown command as typed
  std::string nearest;  // of an unknown command: what may have been meant, or empty
};

ChatLine parse_chat_line(std::string_view line);

// The commands, one per line, for /help.
std::string_view chat_help();

}  // namespace sterling::cli
