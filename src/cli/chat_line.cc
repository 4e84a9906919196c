#include "cli/chat_line.h"

#include <array>
#include <vector>

#include "config/nearest.h"

namespace sterling::cli {
namespace {

struct CommandName {
  std::string_view name;
  ChatLineKind kind;
};

constexpr std::array kCommands{
    CommandName{"/reset", ChatLineKind::kReset}, CommandName{"/system", ChatLineKind::kSystem},
    CommandName{"/help", ChatLineKind::kHelp},   CommandName{"/quit", ChatLineKind::kQuit},
    CommandName{"/exit", ChatLineKind::kQuit},   CommandName{"/clear", ChatLineKind::kReset}};

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

}  // namespace

ChatLine parse_chat_line(std::string_view line) {
  const std::string_view text = trim(line);
  if (text.empty()) return {};
  if (text[0] != '/') return {ChatLineKind::kMessage, std::string(text), {}};
  if (text.starts_with("//")) return {ChatLineKind::kMessage, std::string(text.substr(1)), {}};
  const std::size_t blank = text.find_first_of(" \t");
  const std::string_view name = text.substr(0, blank);
  const std::string_view argument = blank == std::string_view::npos ? std::string_view() : trim(text.substr(blank));
  std::vector<std::string> names;
  for (const CommandName& command : kCommands) {
    // A word behind a command that takes none is more likely a message than a command.
    if (command.name == name && (argument.empty() || command.kind == ChatLineKind::kSystem)) {
      return {command.kind, std::string(argument), {}};
    }
    names.emplace_back(command.name);
  }
  return {ChatLineKind::kUnknown, std::string(text), config::nearest(name, names)};
}

std::string_view chat_help() {
  return "/reset         forget the conversation (the system prompt stays)\n"
         "/system TEXT   set the system prompt for the turns that follow; without TEXT: show it\n"
         "/help          this list\n"
         "/quit          leave (Ctrl-D too, or Ctrl-C twice)\n"
         "//TEXT         a message that starts with a slash\n"
         "Ctrl-C         stop the answer\n";
}

}  // namespace sterling::cli
