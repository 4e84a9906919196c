// The conversation of `sterling chat`: its history, its commands, and what it prints. Answers go to stdout, all else to stderr
// unless it is the prompt of a terminal.
#pragma once

#include <string>
#include <vector>

#include "cli/chat_client.h"
#include "cli/terminal.h"

namespace sterling::cli {

struct ChatStyle {
  bool interactive = false;  // a person types: prompts, hints, figures after each answer
  bool terminal = false;     // stdout is one: control characters are made harmless, reasoning is shown
  bool colours = false;
};

class ChatSession {
 public:
  // `client` must outlive the session.
  ChatSession(ChatClient& client, ChatParameters parameters, std::string system, ChatStyle style)
      : client_(client), parameters_(std::move(parameters)), system_(std::move(system)), style_(style) {}

  // One question; the exit code.
  Expected<int> ask_once(const std::string& question, bool json);
  // Turns until the end of the input; the exit code. Without a terminal the first failed turn ends it.
  Expected<int> converse(const InterruptWatch& watch);

 private:
  enum class Next { kGoOn, kQuit };

  Expected<ChatAnswer> take_turn(const std::string& text, bool show);
  Next run_line(const std::string& line, Status& failure);
  void set_system(const std::string& text);
  void say(std::string_view text) const;  // a hint, dimmed
  std::string dim(std::string_view text) const;
  void show_figures(const ChatAnswer& answer) const;

  ChatClient& client_;
  ChatParameters parameters_;
  std::string system_;
  ChatStyle style_;
  std::vector<ChatMessage> history_;  // without the system prompt
};

}  // namespace sterling::cli
