// Errors and the small documents.
#include <array>

#include "protocol/json_writer.h"
#include "protocol/openai/pieces.h"
#include "protocol/openai/render.h"

namespace sterling::protocol::openai {
namespace {

struct ErrorRow {
  ErrorCode code;
  int status;
  std::string_view type;
};

constexpr std::array kErrors = {
    ErrorRow{ErrorCode::kInvalidArgument, 400, "invalid_request_error"},
    ErrorRow{ErrorCode::kUnsupported, 400, "invalid_request_error"},
    ErrorRow{ErrorCode::kPermission, 403, "permission_error"},
    ErrorRow{ErrorCode::kNotFound, 404, "invalid_request_error"},
    ErrorRow{ErrorCode::kResourceExhausted, 429, "rate_limit_error"},
    ErrorRow{ErrorCode::kUnavailable, 503, "service_unavailable_error"},
    ErrorRow{ErrorCode::kCancelled, 503, "service_unavailable_error"},
    ErrorRow{ErrorCode::kDeadlineExceeded, 504, "timeout_error"},
    ErrorRow{ErrorCode::kCorrupt, 500, "server_error"},
    ErrorRow{ErrorCode::kIo, 500, "server_error"},
    ErrorRow{ErrorCode::kVerification, 500, "server_error"},
    ErrorRow{ErrorCode::kInternal, 500, "server_error"},
};

const ErrorRow& row_of(ErrorCode code) {
  for (const ErrorRow& row : kErrors) {
    if (row.code == code) return row;
  }
  return kErrors.back();
}

void write_model(JsonWriter& json, const serving::Service& service, std::int64_t created, std::string_view name) {
  const serving::GenerationDefaults& d = service.defaults();
  json.begin_object()
      .field("id", name)
      .field("object", "model")
      .field("created", created)
      .field("owned_by", "sterling");
  json.field("max_model_len", service.max_sequence_tokens()).key("generation_defaults").begin_object();
  json.key("temperature").float_short(d.temperature).field("top_k", d.top_k).key("top_p").float_short(d.top_p);
  json.key("min_p").float_short(d.min_p).key("repetition_penalty").float_short(d.repetition_penalty);
  json.end_object().end_object();
}

}  // namespace

std::string render_error(const serving::RequestError& error) {
  std::string out;
  JsonWriter json(out);
  const auto text_or_null = [&](std::string_view key, const std::string& value) {
    json.key(key);
    if (value.empty()) {
      json.null();
    } else {
      json.string(value);
    }
  };
  json.begin_object()
      .key("error")
      .begin_object()
      .field("message", error.message)
      .field("type", row_of(error.code).type);
  text_or_null("param", error.param);
  text_or_null("code", error.reason);
  json.end_object().end_object();
  return out;
}

int http_status(const serving::RequestError& error) {
  return row_of(error.code).status;
}

std::string render_models(const serving::Service& service, std::int64_t created, std::string_view only) {
  std::string out;
  JsonWriter json(out);
  if (!only.empty()) {
    write_model(json, service, created, only);
    return out;
  }
  json.begin_object().field("object", "list").key("data").begin_array();
  for (const std::string& name : service.model_names()) write_model(json, service, created, name);
  json.end_array().end_object();
  return out;
}

std::string render_tokens(const serving::TokenizeResult& result, std::int32_t max_model_len, bool strings) {
  std::string out;
  JsonWriter json(out);
  json.begin_object()
      .field("count", static_cast<std::int64_t>(result.tokens.size()))
      .field("max_model_len", max_model_len);
  write_ids(json.key("tokens"), result.tokens);
  if (strings) {
    json.key("token_strs").begin_array();
    for (const std::string& bytes : result.token_strings) json.string(token_text(bytes, ""));
    json.end_array();
  }
  json.end_object();
  return out;
}

// Both names, vLLM's and llama-server's.
std::string render_text(std::string_view text) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("prompt", text).field("content", text).end_object();
  return out;
}

}  // namespace sterling::protocol::openai
