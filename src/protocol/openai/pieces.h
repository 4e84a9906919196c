// Pieces of OpenAI's responses that chat and completions share.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "protocol/json_writer.h"
#include "protocol/openai/render.h"

namespace sterling::protocol::openai {

// {"id": …, "object": …, "created": …, "model": …, "system_fingerprint": … — left open
void begin_response(JsonWriter& json, const ResponseHead& head, std::string_view object);

// The value only.
void write_usage(JsonWriter& json, const serving::Usage& usage);
void write_ids(JsonWriter& json, const std::vector<std::int32_t>& ids);
void write_chat_logprobs(JsonWriter& json, const std::vector<serving::TokenLogprobs>& entries);
void write_completion_logprobs(JsonWriter& json, const std::vector<serving::TokenLogprobs>& entries);

// "finish_reason" and "stop_reason" with their keys.
void write_finish(JsonWriter& json, serving::FinishReason finish,
                  const std::variant<std::monostate, std::int32_t, std::string>& stop_reason);

// The events that end a stream: usage (choices empty) where asked, "[DONE]"; or the error.
void append_stream_end(std::string& out, const ResponseHead& head, const ResponseShape& shape, std::string_view object,
                       const serving::Update& update);

// A token's text for people: its bytes where they are whole characters, else \x escapes behind `prefix`.
std::string token_text(std::string_view bytes, std::string_view prefix);

inline constexpr std::string_view kEventBegin = "data: ";
inline constexpr std::string_view kEventEnd = "\n\n";

}  // namespace sterling::protocol::openai
