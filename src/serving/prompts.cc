#include "serving/prompts.h"

#include <algorithm>
#include <ctime>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace sterling::serving {
namespace {

std::tm local_now() {
  const std::time_t now = std::time(nullptr);
  std::tm out = {};
  localtime_r(&now, &out);
  return out;
}

RequestError no_tokens(const std::string& param) {
  return {ErrorCode::kInvalidArgument, param + " is empty; accepted: at least one token", param, kInvalidValue};
}

RequestError no_tokenizer(const std::string& param) {
  return {ErrorCode::kUnsupported,
          "the served checkpoint has no tokenizer: text cannot be read; accepted: a list of token ids in \"prompt\"",
          param, kUnsupportedParameter};
}

}  // namespace

Outcome<TokenIds> chat_prompt(const ServiceOptions& model, const std::string& messages_json,
                              const std::string& template_kwargs_json, bool add_generation_prompt,
                              std::size_t longest_token) {
  if (!model.chat_template) {
    return RequestError{
        ErrorCode::kUnsupported,
        "the served checkpoint has no chat template; use /v1/completions, or start with --chat-template FILE",
        "messages", kUnsupportedParameter};
  }
  if (!model.tokenizer) return no_tokenizer("messages");
  text::RenderRequest render;
  render.messages_json = messages_json;
  render.extra_kwargs_json = template_kwargs_json;
  render.add_generation_prompt = add_generation_prompt;
  render.now = local_now();
  Expected<std::string> text = model.chat_template->render(render);
  if (!text) {
    return RequestError{ErrorCode::kInvalidArgument,
                        "the chat template refuses these messages: " + text.error().message, "messages", kInvalidValue};
  }
  if (auto error = check_text_length(model, longest_token, text->size(), "messages")) return std::move(*error);
  // The template wrote BOS and the like itself.
  Expected<TokenIds> ids = model.tokenizer->encode(*text, {.add_special_tokens = false, .parse_special = true});
  if (!ids) return RequestError{ids.error().code, ids.error().message, "messages", kInvalidValue};
  if (ids->empty()) return no_tokens("messages");
  return std::move(*ids);
}

Outcome<TokenIds> text_prompt(const ServiceOptions& model, const std::string& text, bool add_special_tokens,
                              const std::string& param) {
  if (!model.tokenizer) return no_tokenizer(param);
  Expected<TokenIds> ids =
      model.tokenizer->encode(text, {.add_special_tokens = add_special_tokens, .parse_special = true});
  if (!ids) return RequestError{ids.error().code, ids.error().message, param, kInvalidValue};
  return std::move(*ids);
}

std::optional<RequestError> check_token_ids(const ServiceOptions& model, const TokenIds& ids,
                                            const std::string& param) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < model.vocab_size) continue;
    std::string where = fmt::format("{}[{}]", param, i);
    std::string message = fmt::format("{} is the token id {}; accepted: 0 to {}", where, ids[i], model.vocab_size - 1);
    return RequestError{ErrorCode::kInvalidArgument, std::move(message), std::move(where), kInvalidValue};
  }
  return std::nullopt;
}

Outcome<std::int32_t> answer_budget(const ServiceOptions& model, const GenerationOptions& options,
                                    std::int64_t prompt_tokens, const std::string& prompt_param,
                                    std::optional<std::int32_t> fallback) {
  if (prompt_tokens == 0) return no_tokens(prompt_param);
  const std::int64_t limit = model.max_sequence_tokens;
  const std::int64_t room = limit - prompt_tokens;
  if (room < 1) {
    return RequestError{ErrorCode::kInvalidArgument,
                        fmt::format("{} has {} tokens; this model takes at most {} tokens, prompt and answer together",
                                    prompt_param, prompt_tokens, limit),
                        prompt_param, kContextLength};
  }
  if (options.max_tokens && *options.max_tokens > room) {
    return RequestError{
        ErrorCode::kInvalidArgument,
        fmt::format(
            "{} has {} tokens and {} asks for {}, {} together; this model takes at most {} tokens, prompt and answer "
            "together",
            prompt_param, prompt_tokens, options.max_tokens_param, *options.max_tokens,
            prompt_tokens + *options.max_tokens, limit),
        options.max_tokens_param, kContextLength};
  }
  // max_tokens 0 scores the prompt alone; the engine draws one token all the same.
  const std::int64_t wanted = options.max_tokens.value_or(fallback ? std::min<std::int64_t>(*fallback, room) : room);
  const std::int64_t budget = std::max<std::int64_t>(wanted, 1);
  if (options.min_tokens > budget) {
    return RequestError{ErrorCode::kInvalidArgument,
                        fmt::format("min_tokens is {}; accepted: at most the tokens the answer may have, here {}",
                                    options.min_tokens, budget),
                        "min_tokens", kInvalidValue};
  }
  return static_cast<std::int32_t>(budget);
}

std::optional<RequestError> check_text_length(const ServiceOptions& model, std::size_t longest_token,
                                              std::size_t text_bytes, const std::string& param) {
  // Unicode normalisation may shorten a text before it is cut into tokens, by a factor of three at most (Hangul jamo).
  constexpr std::size_t kShortening = 3;
  if (longest_token == 0) return std::nullopt;
  const std::size_t least = text_bytes / (longest_token * kShortening);
  if (least <= static_cast<std::size_t>(model.max_sequence_tokens)) return std::nullopt;
  return RequestError{
      ErrorCode::kInvalidArgument,
      fmt::format("{} has {} bytes of text, more than {} tokens; this model takes at most {} tokens, prompt and "
                  "answer together",
                  param, text_bytes, least, model.max_sequence_tokens),
      param, kContextLength};
}

std::size_t longest_token_bytes(const text::Tokenizer& tokenizer) {
  std::size_t longest = 0;
  for (std::size_t id = 0; id < tokenizer.vocab_size(); ++id) {
    longest = std::max(longest, tokenizer.token_bytes(static_cast<std::int32_t>(id)).size());
  }
  return longest;
}

bool template_reads_parts(const text::ChatTemplate& chat_template) {
  text::RenderRequest request;
  request.messages_json = R"([{"role":"user","content":"one"}])";
  const Expected<std::string> plain = chat_template.render(request);
  request.messages_json = R"([{"role":"user","content":[{"type":"text","text":"one"}]}])";
  const Expected<std::string> parts = chat_template.render(request);
  return plain && parts && *plain == *parts;
}

}  // namespace sterling::serving
