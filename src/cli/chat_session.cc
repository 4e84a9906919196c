#include "cli/chat_session.h"

#include <utility>

#include <boost/json.hpp>
#include <fmt/format.h>

#include "cli/chat_line.h"
#include "cli/command.h"
#include "cli/console.h"

namespace sterling::cli {
namespace {

namespace json = boost::json;

std::string answer_json(const ChatAnswer& answer, const std::string& model) {
  const auto or_null = [](const auto& value) { return value ? json::value(*value) : json::value(nullptr); };
  json::object object;
  object["model"] = model;
  object["answer"] = answer.text;
  object["finish_reason"] = answer.finish_reason.empty() ? json::value(nullptr) : json::value(answer.finish_reason);
  object["prompt_tokens"] = or_null(answer.prompt_tokens);
  object["completion_tokens"] = or_null(answer.completion_tokens);
  object["seconds"] = answer.seconds;
  object["seconds_to_first_text"] =
      answer.seconds_to_first > 0.0 ? json::value(answer.seconds_to_first) : json::value(nullptr);
  object["tokens_per_second"] = or_null(answer.tokens_per_second());
  return json::serialize(object) + "\n";
}

}  // namespace

std::string ChatSession::dim(std::string_view text) const {
  return style_.colours ? fmt::format("\x1b[2m{}\x1b[0m", text) : std::string(text);
}

void ChatSession::say(std::string_view text) const {
  print_err(dim(text) + "\n");
}

// Sends the history with `text` behind it; keeps both the question and what came of the answer. A failed turn leaves no trace, so
// that it can be tried again.
Expected<ChatAnswer> ChatSession::take_turn(const std::string& text, bool show) {
  std::vector<ChatMessage> messages;
  if (!system_.empty()) messages.push_back({"system", system_});
  messages.insert(messages.end(), history_.begin(), history_.end());
  messages.push_back({"user", text});

  TerminalFilter filter;
  bool line_open = false;
  bool reasoning_open = false;
  const auto print = [&](std::string_view piece) {
    if (!show || piece.empty()) return;
    line_open = piece.back() != '\n';
    print_out(style_.terminal ? filter.filter(piece) : std::string(piece));
  };
  ChatSink sink;
  sink.text = [&](std::string_view piece) {
    if (std::exchange(reasoning_open, false)) print_out("\n\n");
    print(piece);
  };
  sink.reasoning = [&](std::string_view piece) {
    if (!show || !style_.terminal) return;  // a script wants the answer
    reasoning_open = true;
    line_open = true;
    print_out(dim(filter.filter(piece)));
  };
  InterruptWatch::clear();
  auto answer = client_.ask(messages, parameters_, sink);
  if (show && line_open) print_out("\n");
  if (!answer) return answer.error();
  if (!answer->interrupted || !answer->text.empty()) {
    history_.push_back({"user", text});
    history_.push_back({"assistant", answer->text});
  }
  return answer;
}

void ChatSession::show_figures(const ChatAnswer& answer) const {
  if (!style_.interactive) return;
  if (answer.interrupted) {
    say("[stopped]");
    return;
  }
  std::string text;
  if (answer.completion_tokens) text += fmt::format("{} tokens", *answer.completion_tokens);
  if (const auto rate = answer.tokens_per_second()) text += fmt::format(", {:.1f} tokens/s", *rate);
  if (answer.seconds_to_first > 0.0)
    text += fmt::format("{}first after {:.2f} s", text.empty() ? "" : ", ", answer.seconds_to_first);
  if (answer.finish_reason == "length") text += ", cut at the token limit";
  if (!text.empty()) say("[" + text + "]");
}

Expected<int> ChatSession::ask_once(const std::string& question, bool json) {
  auto answer = take_turn(question, !json);
  if (!answer) return answer.error();
  if (answer->interrupted) return make_error(ErrorCode::kCancelled, "interrupted");
  if (json) print_out(answer_json(*answer, parameters_.model));
  return kExitOk;
}

void ChatSession::set_system(const std::string& text) {
  if (text.empty()) {
    say(system_.empty() ? "no system prompt; /system TEXT sets one" : "system prompt: " + system_);
    return;
  }
  system_ = text;
  say("the system prompt is set; the conversation goes on (/reset forgets it)");
}

ChatSession::Next ChatSession::run_line(const std::string& line, Status& failure) {
  const ChatLine parsed = parse_chat_line(line);
  switch (parsed.kind) {
    case ChatLineKind::kEmpty: return Next::kGoOn;
    case ChatLineKind::kQuit: return Next::kQuit;
    case ChatLineKind::kHelp: print_err(std::string(chat_help())); return Next::kGoOn;
    case ChatLineKind::kSystem: set_system(parsed.text); return Next::kGoOn;
    case ChatLineKind::kReset:
      history_.clear();
      say("the conversation is forgotten");
      return Next::kGoOn;
    case ChatLineKind::kUnknown: {
      const std::string hint = parsed.nearest.empty() ? "see /help" : fmt::format("did you mean {}?", parsed.nearest);
      print_err(fmt::format("unknown command {}; {} (a message that starts with a slash: //…)\n", parsed.text, hint));
      return Next::kGoOn;
    }
    case ChatLineKind::kMessage: break;
  }
  auto answer = take_turn(parsed.text, true);
  if (answer) {
    show_figures(*answer);
    if (answer->interrupted && !style_.interactive) failure = make_error(ErrorCode::kCancelled, "interrupted");
  } else {
    failure = answer.error();
  }
  return Next::kGoOn;
}

Expected<int> ChatSession::converse(const InterruptWatch& watch) {
  if (style_.interactive) say(parameters_.model + " · /help lists the commands");
  LineReader input;
  bool warned = false;  // a second Ctrl-C in a row at the prompt leaves
  while (true) {
    InterruptWatch::clear();
    if (style_.interactive) print_out("> ");
    std::string line;
    const LineReader::Result result = input.read(line, &watch);
    if (result == LineReader::Result::kFailed) return make_error(ErrorCode::kIo, "standard input cannot be read");
    if (result == LineReader::Result::kEnd) {
      if (style_.interactive) print_out("\n");
      return kExitOk;
    }
    if (result == LineReader::Result::kInterrupted) {
      if (!style_.interactive) return make_error(ErrorCode::kCancelled, "interrupted");
      print_out("\n");
      if (std::exchange(warned, true)) return kExitOk;
      say("Ctrl-C again, Ctrl-D or /quit leaves");
      continue;
    }
    warned = false;
    Status failure;
    if (run_line(line, failure) == Next::kQuit) return kExitOk;
    if (failure) continue;
    if (!style_.interactive) return failure.error();
    print_err(fmt::format("error: {}\n", failure.error().message));
  }
}

}  // namespace sterling::cli
