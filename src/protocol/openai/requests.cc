#include "protocol/openai/requests.h"

#include <utility>

#include <fmt/format.h>

#include "protocol/openai/fields.h"

namespace sterling::protocol::openai {
namespace {

namespace json = boost::json;

constexpr std::int64_t kMaxTopLogprobs = 20;

RequestError zero_tokens(const std::string& param, std::string_view accepted) {
  return invalid_value(param, fmt::format("{} is 0; accepted: {}", param, accepted));
}

void read_prompt(FieldReader& fields, serving::CompletionRequest& request) {
  static constexpr std::string_view kAccepted =
      "a string, an array of strings, an array of token ids, or an array of such arrays";
  const json::value* value = fields.find("prompt");
  if (value == nullptr) {
    return fields.fail({ErrorCode::kInvalidArgument, fmt::format("prompt is missing; accepted: {}", kAccepted),
                        "prompt", serving::kMissingParameter});
  }
  if (value->is_string()) {
    request.prompts.emplace_back(std::string(std::string_view(value->get_string())));
    return;
  }
  if (!value->is_array()) return fields.fail(invalid_type("prompt", *value, kAccepted));
  const json::array& list = value->get_array();
  if (list.empty())
    return fields.fail(invalid_value("prompt", "prompt is empty; accepted: at least one prompt or token id"));
  if (list[0].is_number()) {
    Outcome<std::vector<std::int32_t>> ids = read_token_ids(list, "prompt");
    if (!ids) return fields.fail(ids.error());
    request.prompts.emplace_back(std::move(*ids));
    return;
  }
  request.prompt_is_list = true;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string path = fmt::format("prompt[{}]", i);
    if (list[i].is_string() && list[0].is_string()) {
      request.prompts.emplace_back(std::string(std::string_view(list[i].get_string())));
    } else if (list[i].is_array() && list[0].is_array()) {
      Outcome<std::vector<std::int32_t>> ids = read_token_ids(list[i].get_array(), path);
      if (!ids) return fields.fail(ids.error());
      request.prompts.emplace_back(std::move(*ids));
    } else {
      return fields.fail(invalid_type(path, list[i], fmt::format("what prompt[0] is, and prompt is {}", kAccepted)));
    }
  }
}

}  // namespace

serving::Outcome<serving::ChatRequest> parse_chat_request(std::string_view body, const ChatParsing& parsing) {
  Outcome<json::object> object = parse_body(body);
  if (!object) return object.error();
  FieldReader fields(*object, "");
  serving::ChatRequest out;
  out.model = fields.string("model").value_or("");
  out.messages_json = read_messages(fields, parsing);
  out.template_kwargs_json = read_template_kwargs(fields);
  out.add_generation_prompt = fields.boolean("add_generation_prompt", true);
  read_generation_options(fields, out.options);
  out.stream = read_stream_options(fields);

  const bool logprobs = fields.boolean("logprobs", false);
  const auto top = fields.integer("top_logprobs", 0, kMaxTopLogprobs);
  if (logprobs) out.options.logprobs = static_cast<std::int32_t>(top.value_or(0));
  if (top && *top > 0 && !logprobs) {
    fields.fail(invalid_value(
        "top_logprobs", fmt::format("top_logprobs is {} and logprobs is not true; accepted: both, or neither", *top)));
  }
  if (out.options.max_tokens == 0) fields.fail(zero_tokens(out.options.max_tokens_param, "at least 1"));
  fields.refuse("echo", "the prompt is returned by /v1/completions only");
  fields.refuse("continue_final_message", "the last message cannot be continued yet");
  fields.refuse("chat_template", "the server has one chat template, chosen at start");
  fields.refuse("documents", "put them into the messages");
  read_harmless_fields(fields);
  refuse_unsupported_fields(fields);
  fields.finish();
  if (fields.failed()) return *fields.error();
  return out;
}

serving::Outcome<serving::CompletionRequest> parse_completion_request(std::string_view body) {
  Outcome<json::object> object = parse_body(body);
  if (!object) return object.error();
  FieldReader fields(*object, "");
  serving::CompletionRequest out;
  out.model = fields.string("model").value_or("");
  read_prompt(fields, out);
  out.add_special_tokens = fields.boolean("add_special_tokens", true);
  out.echo = fields.boolean("echo", false);
  read_generation_options(fields, out.options);
  out.stream = read_stream_options(fields);

  if (const auto logprobs = fields.integer("logprobs", 0, kMaxTopLogprobs)) {
    out.options.logprobs = static_cast<std::int32_t>(*logprobs);
  }
  if (out.echo && out.options.logprobs.value_or(0) > 0) {
    fields.fail(unsupported(
        "logprobs", fmt::format("logprobs is {} and echo is true: the alternatives of prompt tokens are not computed; "
                                "accepted with echo: logprobs 0",
                                *out.options.logprobs)));
  }
  if (out.options.max_tokens == 0 && !out.echo) {
    fields.fail(zero_tokens(out.options.max_tokens_param, "at least 1, or 0 together with echo"));
  }
  fields.refuse("suffix", "text cannot be inserted before a suffix");
  if (const auto best_of = fields.integer("best_of", 1, 128); best_of && *best_of != out.options.n) {
    fields.fail(unsupported("best_of", "best_of is not supported: every choice drawn is returned; use n"));
  }
  read_harmless_fields(fields);
  refuse_unsupported_fields(fields);
  fields.finish();
  if (fields.failed()) return *fields.error();
  return out;
}

serving::Outcome<serving::TokenizeRequest> parse_tokenize_request(std::string_view body, const ChatParsing& parsing) {
  Outcome<json::object> object = parse_body(body);
  if (!object) return object.error();
  FieldReader fields(*object, "");
  serving::TokenizeRequest out;
  out.model = fields.string("model").value_or("");
  const std::optional<std::string> prompt = fields.string("prompt");
  const std::optional<std::string> content = fields.string("content");
  const bool messages = fields.find("messages") != nullptr;
  if (static_cast<int>(prompt.has_value()) + static_cast<int>(content.has_value()) + static_cast<int>(messages) != 1) {
    fields.fail({ErrorCode::kInvalidArgument, "one of prompt, content and messages is needed, and only one", "prompt",
                 serving::kMissingParameter});
  }
  out.text = prompt ? prompt : content;
  out.text_param = content ? "content" : "prompt";
  if (messages) out.messages_json = read_messages(fields, parsing);
  out.template_kwargs_json = read_template_kwargs(fields);
  out.add_generation_prompt = fields.boolean("add_generation_prompt", true);
  out.add_special_tokens = fields.boolean("add_special_tokens", fields.boolean("add_special", !content));
  out.return_token_strings = fields.boolean("return_token_strs", false);
  fields.finish();
  if (fields.failed()) return *fields.error();
  return out;
}

serving::Outcome<serving::DetokenizeRequest> parse_detokenize_request(std::string_view body) {
  Outcome<json::object> object = parse_body(body);
  if (!object) return object.error();
  FieldReader fields(*object, "");
  serving::DetokenizeRequest out;
  out.model = fields.string("model").value_or("");
  if (fields.find("tokens") == nullptr) {
    fields.fail({ErrorCode::kInvalidArgument, "tokens is missing; accepted: an array of token ids", "tokens",
                 serving::kMissingParameter});
  }
  out.tokens = fields.token_ids("tokens");
  fields.finish();
  if (fields.failed()) return *fields.error();
  return out;
}

}  // namespace sterling::protocol::openai
