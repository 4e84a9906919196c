// The client half of the OpenAI chat API for `sterling chat`: blocking calls over plain HTTP, answers streamed as they come, each
// call on a connection of its own so that closing it cancels the request.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace sterling::cli {

struct ServerUrl {
  std::string host;    // without the brackets of an IPv6 address
  std::string port;    // decimal
  std::string prefix;  // path before /v1, "" or "/something"
};

// "http://HOST[:PORT][/PREFIX][/v1]". kUnsupported for https, kInvalidArgument for what is no such URL.
Expected<ServerUrl> parse_server_url(std::string_view url);

struct ChatMessage {
  std::string role, content;
};

struct ChatParameters {
  std::string model;
  std::optional<double> temperature;
  std::optional<std::int64_t> max_tokens, seed;
};

struct ChatAnswer {
  std::string text;
  std::string finish_reason;  // "stop", "length", …; empty when interrupted
  bool interrupted = false;
  std::optional<std::int64_t> prompt_tokens, completion_tokens;
  double seconds = 0.0;           // from sending to the end
  double seconds_to_first = 0.0;  // to the first text; 0 when there was none

  // Of the tokens after the first; empty when unknown.
  std::optional<double> tokens_per_second() const;
};

// Pieces of an answer as they arrive. Reasoning is what the server sends apart from the answer proper.
struct ChatSink {
  std::function<void(std::string_view)> text;
  std::function<void(std::string_view)> reasoning;
};

// The body of a chat request.
std::string chat_request_json(const std::vector<ChatMessage>& messages, const ChatParameters& parameters);

// An HTTP error answer as an Error: the API's own message with the field in `where`, or the status when it has none.
Error api_error(int status, std::string_view body);

// Takes the events of a streamed answer.
class ChatStream {
 public:
  explicit ChatStream(const ChatSink& sink) : sink_(sink) {}
  // The data of one event. An error object in the stream, and JSON that is none, are errors.
  Status take(std::string_view event);

  bool done() const { return done_; }          // [DONE] has come
  bool has_text() const { return has_text_; }  // answer or reasoning
  ChatAnswer& answer() { return answer_; }

 private:
  const ChatSink& sink_;
  ChatAnswer answer_;
  bool done_ = false;
  bool has_text_ = false;
};

class ChatClient {
 public:
  // `interrupted` is asked every 50 ms while something is awaited; true closes the connection.
  ChatClient(ServerUrl url, std::optional<std::string> api_key, std::function<bool()> interrupted)
      : url_(std::move(url)), api_key_(std::move(api_key)), interrupted_(std::move(interrupted)) {}

  // The first model that the server lists.
  Expected<std::string> first_model();
  // An interrupted answer is no error; it holds what had come.
  Expected<ChatAnswer> ask(const std::vector<ChatMessage>& messages, const ChatParameters& parameters,
                           const ChatSink& sink);

 private:
  ServerUrl url_;
  std::optional<std::string> api_key_;
  std::function<bool()> interrupted_;
};

}  // namespace sterling::cli
