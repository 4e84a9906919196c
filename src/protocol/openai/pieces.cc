#include "protocol/openai/pieces.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include <fmt/format.h>

#include "base/utf8.h"

namespace sterling::protocol::openai {
namespace {

// JSON has no infinity; this is what OpenAI prints for "never".
constexpr float kNever = -9999.0F;

void write_logprob(JsonWriter& json, float logprob) {
  json.float_exact(std::isfinite(logprob) ? logprob : kNever);
}

void write_alternative(JsonWriter& json, const serving::TokenAlternative& token) {
  json.field("token", token_text(token.bytes, "")).key("logprob");
  write_logprob(json, token.logprob);
  json.key("bytes").begin_array();
  for (const char c : token.bytes) json.integer(static_cast<unsigned char>(c));
  json.end_array();
}

// The drawn token stands among its alternatives; different tokens of one text are shown once, the best.
void write_top_object(JsonWriter& json, const serving::TokenLogprobs& entry) {
  std::unordered_set<std::string> seen;
  const auto write = [&](const serving::TokenAlternative& token) {
    const std::string text = token_text(token.bytes, "bytes:");
    if (!seen.insert(text).second) return;
    json.key(text);
    write_logprob(json, token.logprob);
  };
  json.begin_object();
  for (const auto& token : entry.top) write(token);
  write(entry.token);
  json.end_object();
}

}  // namespace

std::string token_text(std::string_view bytes, std::string_view prefix) {
  if (utf8_valid_prefix(bytes) == bytes.size()) return std::string(bytes);
  std::string out(prefix);
  for (const char c : bytes) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return out;
}

void begin_response(JsonWriter& json, const ResponseHead& head, std::string_view object) {
  json.begin_object()
      .field("id", head.id)
      .field("object", object)
      .field("created", head.created)
      .field("model", head.model);
  json.key("system_fingerprint");
  if (head.system_fingerprint.empty()) {
    json.null();
  } else {
    json.string(head.system_fingerprint);
  }
}

void write_usage(JsonWriter& json, const serving::Usage& usage) {
  json.begin_object()
      .field("prompt_tokens", usage.prompt_tokens)
      .field("completion_tokens", usage.completion_tokens)
      .field("total_tokens", usage.prompt_tokens + usage.completion_tokens);
  json.key("prompt_tokens_details").begin_object().field("cached_tokens", usage.cached_tokens).end_object();
  json.key("completion_tokens_details").begin_object().field("reasoning_tokens", usage.reasoning_tokens).end_object();
  json.end_object();
}

void write_ids(JsonWriter& json, const std::vector<std::int32_t>& ids) {
  json.begin_array();
  for (const std::int32_t id : ids) json.integer(id);
  json.end_array();
}

void write_chat_logprobs(JsonWriter& json, const std::vector<serving::TokenLogprobs>& entries) {
  json.begin_object().key("content").begin_array();
  for (const auto& entry : entries) {
    json.begin_object();
    write_alternative(json, entry.token);
    json.key("top_logprobs").begin_array();
    for (const auto& token : entry.top) {
      json.begin_object();
      write_alternative(json, token);
      json.end_object();
    }
    json.end_array().end_object();
  }
  json.end_array().key("refusal").null().end_object();
}

void write_completion_logprobs(JsonWriter& json, const std::vector<serving::TokenLogprobs>& entries) {
  json.begin_object().key("tokens").begin_array();
  for (const auto& entry : entries) json.string(token_text(entry.token.bytes, "bytes:"));
  json.end_array().key("token_logprobs").begin_array();
  for (const auto& entry : entries) {
    if (entry.has_logprob) {
      write_logprob(json, entry.token.logprob);
    } else {
      json.null();
    }
  }
  json.end_array().key("top_logprobs").begin_array();
  for (const auto& entry : entries) {
    if (entry.has_top) {
      write_top_object(json, entry);
    } else {
      json.null();
    }
  }
  json.end_array().key("text_offset").begin_array();
  for (const auto& entry : entries) json.integer(entry.text_offset);
  json.end_array().end_object();
}

void write_finish(JsonWriter& json, serving::FinishReason finish,
                  const std::variant<std::monostate, std::int32_t, std::string>& stop_reason) {
  json.key("finish_reason");
  switch (finish) {
    case serving::FinishReason::kNone: json.null(); break;
    case serving::FinishReason::kStop: json.string("stop"); break;
    case serving::FinishReason::kLength: json.string("length"); break;
  }
  json.key("stop_reason");
  if (const auto* id = std::get_if<std::int32_t>(&stop_reason)) {
    json.integer(*id);
  } else if (const auto* text = std::get_if<std::string>(&stop_reason)) {
    json.string(*text);
  } else {
    json.null();
  }
}

void append_stream_end(std::string& out, const ResponseHead& head, const ResponseShape& shape, std::string_view object,
                       const serving::Update& update) {
  if (update.error) {
    out += kEventBegin;
    out += render_error(*update.error);
    out += kEventEnd;
  }
  if (!update.finished) return;
  if (shape.include_usage) {
    out += kEventBegin;
    JsonWriter json(out);
    begin_response(json, head, object);
    json.key("choices").begin_array().end_array().key("usage");
    write_usage(json, update.usage);
    json.end_object();
    out += kEventEnd;
  }
  out += "data: [DONE]\n\n";
}

}  // namespace sterling::protocol::openai
