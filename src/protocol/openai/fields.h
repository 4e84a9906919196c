// Groups of fields that several of OpenAI's requests share.
#pragma once

#include <string>

#include "protocol/openai/requests.h"
#include "protocol/request_body.h"

namespace sterling::protocol::openai {

// Sampling, lengths, stops, n, seed: everything but logprobs, which the two requests spell differently.
void read_generation_options(FieldReader& fields, serving::GenerationOptions& options);

serving::StreamOptions read_stream_options(FieldReader& fields);

// Fields of OpenAI's and other servers' requests that change nothing here, and those that would and cannot be had.
void read_harmless_fields(FieldReader& fields);
void refuse_unsupported_fields(FieldReader& fields);

// "messages" as the JSON text that the chat template gets. Empty after an error, which `fields` then has.
std::string read_messages(FieldReader& fields, const ChatParsing& parsing);

// "chat_template_kwargs", an object; empty when absent.
std::string read_template_kwargs(FieldReader& fields);

}  // namespace sterling::protocol::openai
