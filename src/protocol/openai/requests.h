// OpenAI's requests as serving's. Pure functions: no sockets, no model. What a field may hold is checked here, with its path in the
// error; what depends on the model (token ids, lengths, names) is serving's to check.
//
// A field that would change the answer and is not implemented is refused. So is one that is unknown: see docs of FieldReader.
#pragma once

#include <string_view>

#include "serving/service.h"
#include "serving/types.h"

namespace sterling::protocol::openai {

struct ChatParsing {
  // The model's chat template reads lists of text parts itself; otherwise they are joined by newlines to one string.
  bool template_reads_parts = false;
};

// POST /v1/chat/completions
serving::Outcome<serving::ChatRequest> parse_chat_request(std::string_view body, const ChatParsing& parsing);

// POST /v1/completions
serving::Outcome<serving::CompletionRequest> parse_completion_request(std::string_view body);

// POST /tokenize: {"prompt": …} as vLLM has it, {"content": …} as llama-server does (no special tokens unless asked), or {"messages": …}.
serving::Outcome<serving::TokenizeRequest> parse_tokenize_request(std::string_view body, const ChatParsing& parsing);

// POST /detokenize: {"tokens": […]}
serving::Outcome<serving::DetokenizeRequest> parse_detokenize_request(std::string_view body);

}  // namespace sterling::protocol::openai
