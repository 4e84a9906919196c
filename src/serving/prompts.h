// From what the client wrote to prompt token ids, with the limits that need a token count. Pure over the model's description.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "serving/service.h"
#include "serving/types.h"

namespace sterling::serving {

using TokenIds = std::vector<std::int32_t>;

// `longest_token` as for check_text_length(); 0 for no limit.
Outcome<TokenIds> chat_prompt(const ServiceOptions& model, const std::string& messages_json,
                              const std::string& template_kwargs_json, bool add_generation_prompt,
                              std::size_t longest_token);

// `param` is "prompt" or "prompt[i]".
Outcome<TokenIds> text_prompt(const ServiceOptions& model, const std::string& text, bool add_special_tokens,
                              const std::string& param);

// Every id is in 0 … vocab_size - 1. `param` of the message gets the index behind it.
std::optional<RequestError> check_token_ids(const ServiceOptions& model, const TokenIds& ids, const std::string& param);

// How many tokens a choice may draw: the request's max_tokens, or `fallback`, or what the context still holds. Never truncates
// anything: a sequence that does not fit is an error with both numbers.
Outcome<std::int32_t> answer_budget(const ServiceOptions& model, const GenerationOptions& options,
                                    std::int64_t prompt_tokens, const std::string& prompt_param,
                                    std::optional<std::int32_t> fallback);

// Tokenising takes time with the text's length. A text that cannot fit whatever its tokens are is refused without it.
// `longest_token` in bytes, 0: unknown.
std::optional<RequestError> check_text_length(const ServiceOptions& model, std::size_t longest_token,
                                              std::size_t text_bytes, const std::string& param);

// Bytes of the tokenizer's longest token.
std::size_t longest_token_bytes(const text::Tokenizer& tokenizer);

// Whether the template shows a list of text parts as it shows the same text in one string.
bool template_reads_parts(const text::ChatTemplate& chat_template);

}  // namespace sterling::serving
