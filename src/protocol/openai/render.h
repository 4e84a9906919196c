// serving's answers as OpenAI's JSON and server-sent events. Pure functions and small state machines: no sockets, no clock.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "serving/collector.h"
#include "serving/service.h"
#include "serving/types.h"

namespace sterling::protocol::openai {

// What stands at the head of every response and chunk.
struct ResponseHead {
  std::string id;
  std::int64_t created = 0;  // seconds since 1970
  std::string model;
  std::string system_fingerprint;  // empty: null
};

// How the request shapes its response.
struct ResponseShape {
  bool logprobs = false;
  bool token_ids = false;
  bool include_usage = false;  // streams
  std::int32_t choices = 1;
  std::int32_t choices_per_prompt = 1;

  static ResponseShape of(const serving::ChatRequest& request);
  static ResponseShape of(const serving::CompletionRequest& request);
};

std::string render_chat(const ResponseHead& head, const ResponseShape& shape, const serving::CollectedAnswer& answer);
std::string render_completion(const ResponseHead& head, const ResponseShape& shape,
                              const serving::CollectedAnswer& answer);

// A stream's events: the assistant's role for every choice, the deltas, one event with each finish reason, the usage where asked,
// "[DONE]". After an error there is one event with it and no "[DONE]": that word says the answer is whole.
class StreamRenderer {
 public:
  virtual ~StreamRenderer() = default;
  // The text/event-stream bytes of one update.
  virtual std::string render(const serving::Update& update) = 0;
};

class ChatStreamRenderer : public StreamRenderer {
 public:
  ChatStreamRenderer(ResponseHead head, ResponseShape shape) : head_(std::move(head)), shape_(shape) {}
  std::string render(const serving::Update& update) override;

 private:
  ResponseHead head_;
  ResponseShape shape_;
};

class CompletionStreamRenderer : public StreamRenderer {
 public:
  CompletionStreamRenderer(ResponseHead head, ResponseShape shape) : head_(std::move(head)), shape_(shape) {}
  std::string render(const serving::Update& update) override;

 private:
  ResponseHead head_;
  ResponseShape shape_;
  std::vector<std::vector<std::int32_t>> prompt_ids_;
  std::vector<bool> began_;
};

// --- errors

// {"error": {"message", "type", "param", "code"}}
std::string render_error(const serving::RequestError& error);
// The HTTP status of an error; the one table of them.
int http_status(const serving::RequestError& error);

// --- small documents

// GET /v1/models; with `only` not empty, that one's object.
std::string render_models(const serving::Service& service, std::int64_t created, std::string_view only);
std::string render_tokens(const serving::TokenizeResult& result, std::int32_t max_model_len, bool strings);
std::string render_text(std::string_view text);

}  // namespace sterling::protocol::openai
