#include "cli/chat_client.h"

#include <charconv>
#include <chrono>
#include <utility>

#include <boost/json.hpp>
#include <fmt/format.h>

#include "cli/http_exchange.h"
#include "cli/sse_parser.h"

namespace sterling::cli {
namespace {

namespace json = boost::json;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kMaxPlainBody = std::size_t{4} << 20;

const json::object* object_at(const json::object* object, std::string_view key) {
  const json::value* value = object == nullptr ? nullptr : object->if_contains(key);
  return value != nullptr && value->is_object() ? &value->get_object() : nullptr;
}

std::string string_at(const json::object* object, std::string_view key) {
  const json::value* value = object == nullptr ? nullptr : object->if_contains(key);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

std::optional<std::int64_t> integer_at(const json::object* object, std::string_view key) {
  const json::value* value = object == nullptr ? nullptr : object->if_contains(key);
  if (value == nullptr || !value->is_int64()) return std::nullopt;
  return value->get_int64();
}

std::optional<json::object> parse_object(std::string_view text) {
  boost::system::error_code error;
  json::value value = json::parse(text, error);
  if (error || !value.is_object()) return std::nullopt;
  return std::move(value.get_object());
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Error error_of(const json::object& error, ErrorCode code) {
  std::string message = string_at(&error, "message");
  const std::string field = string_at(&error, "param");
  if (message.empty()) message = json::serialize(error);
  if (!field.empty() && message.find(field) == std::string::npos) message += fmt::format(" (field {})", field);
  return make_error(code, std::move(message), field);
}

}  // namespace

Expected<ServerUrl> parse_server_url(std::string_view url) {
  const std::string whole(url);
  const auto refuse = [&whole](std::string_view why) {
    return make_error(ErrorCode::kInvalidArgument, fmt::format("{}: {}; expected http://HOST:PORT", whole, why),
                      "MODEL|URL");
  };
  if (url.starts_with("https://")) {
    return make_error(
        ErrorCode::kUnsupported,
        fmt::format("{}: https is not supported; talk to the server over http, through an ssh tunnel if it is far",
                    whole),
        "MODEL|URL");
  }
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme)) return refuse("no http URL");
  url.remove_prefix(kScheme.size());
  if (url.find_first_of("?#@ \r\n\t") != std::string_view::npos)
    return refuse("a user, query, fragment or blank is not accepted");

  ServerUrl result;
  const std::size_t slash = url.find('/');
  std::string_view authority = url.substr(0, slash);
  std::string_view path = slash == std::string_view::npos ? std::string_view() : url.substr(slash);
  while (path.ends_with('/')) path.remove_suffix(1);
  if (path.ends_with("/v1")) path.remove_suffix(3);
  while (path.ends_with('/')) path.remove_suffix(1);
  result.prefix = std::string(path);

  std::string_view port;
  if (authority.starts_with('[')) {
    const std::size_t close = authority.find(']');
    if (close == std::string_view::npos) return refuse("the [ has no ]");
    result.host = std::string(authority.substr(1, close - 1));
    authority.remove_prefix(close + 1);
    if (!authority.empty() && authority[0] != ':') return refuse("something between ] and the port");
    port = authority.empty() ? std::string_view("80") : authority.substr(1);
  } else {
    const std::size_t colon = authority.find(':');
    result.host = std::string(authority.substr(0, colon));
    port = colon == std::string_view::npos ? std::string_view("80") : authority.substr(colon + 1);
  }
  if (result.host.empty()) return refuse("no host");
  unsigned number = 0;
  const auto [end, problem] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (problem != std::errc() || end != port.data() + port.size() || number < 1 || number > 65535) {
    return refuse("the port is no number from 1 to 65535");
  }
  result.port = std::to_string(number);
  return result;
}

std::optional<double> ChatAnswer::tokens_per_second() const {
  const double span = seconds - seconds_to_first;
  if (completion_tokens.value_or(0) < 2 || seconds_to_first <= 0.0 || span <= 0.0) return std::nullopt;
  return static_cast<double>(*completion_tokens - 1) / span;
}

std::string chat_request_json(const std::vector<ChatMessage>& messages, const ChatParameters& parameters) {
  json::array list;
  for (const ChatMessage& message : messages) {
    list.push_back(json::object{{"role", message.role}, {"content", message.content}});
  }
  json::object body;
  body["model"] = parameters.model;
  body["messages"] = std::move(list);
  body["stream"] = true;
  body["stream_options"] = json::object{{"include_usage", true}};
  if (parameters.temperature) body["temperature"] = *parameters.temperature;
  if (parameters.max_tokens) body["max_tokens"] = *parameters.max_tokens;
  if (parameters.seed) body["seed"] = *parameters.seed;
  return json::serialize(body);
}

Error api_error(int status, std::string_view body) {
  // Not a fault of our command line (kInvalidArgument means that to the exit code), so kUnavailable or kUnsupported.
  const ErrorCode code = status == 401 || status == 403   ? ErrorCode::kPermission
                         : status == 404                  ? ErrorCode::kNotFound
                         : status >= 500 || status == 429 ? ErrorCode::kUnavailable
                                                          : ErrorCode::kUnsupported;
  if (const auto document = parse_object(body)) {
    if (const json::object* error = object_at(&*document, "error")) return error_of(*error, code);
  }
  return make_error(code, fmt::format("the server answered with HTTP status {}", status));
}

Status ChatStream::take(std::string_view event) {
  if (event == "[DONE]") {
    done_ = true;
    return {};
  }
  const auto chunk = parse_object(event);
  if (!chunk) return make_error(ErrorCode::kCorrupt, "the server sent an event that is no JSON object");
  if (const json::object* error = object_at(&*chunk, "error")) return error_of(*error, ErrorCode::kUnavailable);
  if (const json::object* usage = object_at(&*chunk, "usage")) {
    answer_.prompt_tokens = integer_at(usage, "prompt_tokens");
    answer_.completion_tokens = integer_at(usage, "completion_tokens");
  }
  const json::value* choices = chunk->if_contains("choices");
  if (choices == nullptr || !choices->is_array() || choices->get_array().empty()) return {};
  const json::value& first = choices->get_array()[0];
  if (!first.is_object()) return {};
  const json::object* choice = &first.get_object();
  const json::object* delta = object_at(choice, "delta");
  std::string reasoning = string_at(delta, "reasoning_content");
  if (reasoning.empty()) reasoning = string_at(delta, "reasoning");  // the same under another name
  const std::string text = string_at(delta, "content");
  if (!reasoning.empty() && sink_.reasoning) sink_.reasoning(reasoning);
  if (!text.empty()) {
    answer_.text += text;
    if (sink_.text) sink_.text(text);
  }
  has_text_ = has_text_ || !text.empty() || !reasoning.empty();
  if (std::string reason = string_at(choice, "finish_reason"); !reason.empty())
    answer_.finish_reason = std::move(reason);
  return {};
}

Expected<std::string> ChatClient::first_model() {
  std::string body;
  const HttpRequest request{url_.host, url_.port, url_.prefix + "/v1/models", std::nullopt, api_key_};
  const HttpCallbacks callbacks{interrupted_, [&body](int, std::string_view piece) -> Status {
                                  if (body.size() + piece.size() > kMaxPlainBody) {
                                    return make_error(ErrorCode::kCorrupt,
                                                      "/v1/models: the answer is larger than 4 MiB");
                                  }
                                  body += piece;
                                  return {};
                                }};
  auto outcome = exchange(request, callbacks);
  if (!outcome) return outcome.error();
  if (outcome->interrupted) return make_error(ErrorCode::kCancelled, "interrupted");
  if (outcome->status != 200) return api_error(outcome->status, body);
  const auto document = parse_object(body);
  const json::value* data = document ? document->if_contains("data") : nullptr;
  if (data != nullptr && data->is_array() && !data->get_array().empty() && data->get_array()[0].is_object()) {
    std::string id = string_at(&data->get_array()[0].get_object(), "id");
    if (!id.empty()) return id;
  }
  return make_error(ErrorCode::kNotFound, "/v1/models lists no model; name one with --model");
}

Expected<ChatAnswer> ChatClient::ask(const std::vector<ChatMessage>& messages, const ChatParameters& parameters,
                                     const ChatSink& sink) {
  SseParser events;
  ChatStream stream(sink);
  std::string error_body;
  const Clock::time_point start = Clock::now();
  const HttpRequest request{url_.host, url_.port, url_.prefix + "/v1/chat/completions",
                            chat_request_json(messages, parameters), api_key_};
  const auto take = [&](int status, std::string_view piece) -> Status {
    if (status != 200) {
      if (error_body.size() < kMaxPlainBody) error_body += piece;
      return {};
    }
    auto complete = events.feed(piece);
    if (!complete) return complete.error();
    for (const std::string& event : *complete) {
      if (stream.done()) break;
      if (Status taken = stream.take(event); !taken) return taken;
      if (stream.has_text() && stream.answer().seconds_to_first == 0.0)
        stream.answer().seconds_to_first = seconds_since(start);
    }
    return {};
  };
  auto outcome = exchange(request, {interrupted_, take});
  if (!outcome) return outcome.error();
  stream.answer().seconds = seconds_since(start);
  stream.answer().interrupted = outcome->interrupted;
  if (outcome->interrupted) return std::move(stream.answer());
  if (outcome->status != 200) return api_error(outcome->status, error_body);
  if (!stream.done()) return make_error(ErrorCode::kUnavailable, "the server ended the answer before it was complete");
  return std::move(stream.answer());
}

}  // namespace sterling::cli
