#include "cli/logprob_client.h"

#include <fmt/format.h>

#include "cli/http_exchange.h"
#include "formats/json.h"

namespace sterling::cli {
namespace {

namespace json = boost::json;

constexpr std::size_t kLargestAnswer = std::size_t{64} << 20;

}  // namespace

Error LogprobClient::wrong(std::string message) const {
  return make_error(ErrorCode::kUnavailable, fmt::format("{}: {}", name_, message), "--url");
}

Expected<std::string> LogprobClient::exchange_json(const std::string& target, const std::optional<std::string>& body,
                                                   int* status) const {
  std::string answer;
  const HttpRequest request{url_.host, url_.port, url_.prefix + target, body, api_key_};
  const auto take = [&answer](int, std::string_view piece) -> Status {
    if (answer.size() + piece.size() > kLargestAnswer) {
      return make_error(ErrorCode::kCorrupt, "the answer is larger than 64 MiB");
    }
    answer += piece;
    return {};
  };
  auto outcome = exchange(request, {stopped_, take});
  if (!outcome) return wrong(outcome.error().message);
  if (outcome->interrupted) return make_error(ErrorCode::kCancelled, "stopped; the same command goes on where it was");
  *status = outcome->status;
  return answer;
}

Status LogprobClient::connect(const std::optional<std::string>& model) {
  if (model) {
    model_ = *model;
  } else {
    auto first = ChatClient(url_, api_key_, stopped_).first_model();
    if (!first) return wrong(first.error().message);
    model_ = *first;
  }
  int status = 0;
  auto precision = exchange_json("/v1/precision", std::nullopt, &status);
  if (!precision) return precision.error();
  if (status != 200) return {};  // not one of ours
  const auto document = formats::parse_json_object(*precision, "/v1/precision");
  const json::value* hash = document ? document->if_contains("hash") : nullptr;
  if (hash != nullptr && hash->is_string()) manifest_ = std::string(hash->get_string());
  return {};
}

Expected<lab::ServerAnswer> LogprobClient::ask(const LogprobRequest& request) const {
  json::object body{{"model", model_}, {"max_tokens", request.steps}, {"temperature", 0}, {"stream", false}};
  if (request.chat) {
    body["messages"] = request.prompt;
    body["logprobs"] = true;
    body["top_logprobs"] = request.top;
  } else {
    body["prompt"] = request.prompt;
    body["logprobs"] = request.top;
  }
  int status = 0;
  auto text = exchange_json(request.chat ? "/v1/chat/completions" : "/v1/completions", json::serialize(body), &status);
  if (!text) return text.error();
  if (status != 200) {
    const Error error = api_error(status, *text);
    return make_error(error.code, fmt::format("{}: {}", name_, error.message), "--url");
  }
  const auto document = formats::parse_json_object(*text, name_);
  if (!document) return document.error();
  const json::value* choices = document->if_contains("choices");
  if (choices == nullptr || !choices->is_array() || choices->get_array().empty() ||
      !choices->get_array()[0].is_object()) {
    return wrong("the answer holds no choices");
  }
  auto steps = lab::read_steps(choices->get_array()[0].get_object());
  if (!steps) {
    return make_error(
        ErrorCode::kUnsupported,
        fmt::format("{}: {}: the server is asked for the {} most probable tokens of each step and must send them",
                    name_, steps.error().message, request.top),
        "--url");
  }
  lab::ServerAnswer answer;
  answer.steps = std::move(*steps);
  const json::value* usage = document->if_contains("usage");
  const json::value* tokens =
      usage != nullptr && usage->is_object() ? usage->get_object().if_contains("prompt_tokens") : nullptr;
  if (tokens == nullptr || !tokens->is_int64()) return wrong("the answer's usage holds no prompt_tokens");
  answer.prompt_tokens = tokens->get_int64();
  return answer;
}

}  // namespace sterling::cli
