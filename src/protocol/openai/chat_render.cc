#include "protocol/openai/pieces.h"
#include "protocol/openai/render.h"

namespace sterling::protocol::openai {
namespace {

constexpr std::string_view kChunk = "chat.completion.chunk";

// One event with one choice, up to and including the opened "delta" object.
class ChunkWriter {
 public:
  ChunkWriter(std::string& out, const ResponseHead& head, std::int32_t index) : out_(out), json_(out) {
    out += kEventBegin;
    begin_response(json_, head, kChunk);
    json_.key("choices").begin_array().begin_object().field("index", index).key("delta").begin_object();
  }
  JsonWriter& json() { return json_; }
  void end(const ResponseShape& shape, const serving::ChoiceDelta& delta, bool with_tokens, bool with_finish) {
    json_.end_object().key("logprobs");
    if (with_tokens && shape.logprobs && !delta.logprobs.empty()) {
      write_chat_logprobs(json_, delta.logprobs);
    } else {
      json_.null();
    }
    write_finish(json_, with_finish ? delta.finish : serving::FinishReason::kNone,
                 with_finish ? delta.stop_reason : std::variant<std::monostate, std::int32_t, std::string>());
    if (with_tokens && shape.token_ids) write_ids(json_.key("token_ids"), delta.token_ids);
    json_.end_object().end_array();
    if (shape.include_usage) json_.key("usage").null();
  }
  void close() {
    json_.end_object();
    out_ += kEventEnd;
  }

 private:
  std::string& out_;
  JsonWriter json_;
};

}  // namespace

ResponseShape ResponseShape::of(const serving::ChatRequest& request) {
  return {.logprobs = request.options.logprobs.has_value(),
          .token_ids = request.options.return_token_ids,
          .include_usage = request.stream.include_usage,
          .choices = request.options.n,
          .choices_per_prompt = request.options.n};
}

std::string render_chat(const ResponseHead& head, const ResponseShape& shape, const serving::CollectedAnswer& answer) {
  std::string out;
  JsonWriter json(out);
  begin_response(json, head, "chat.completion");
  json.key("choices").begin_array();
  for (std::size_t i = 0; i < answer.choices.size(); ++i) {
    const serving::CollectedChoice& choice = answer.choices[i];
    json.begin_object().field("index", static_cast<std::int64_t>(i)).key("message").begin_object();
    json.field("role", "assistant").field("content", choice.text).key("refusal").null().end_object();
    json.key("logprobs");
    if (shape.logprobs) {
      write_chat_logprobs(json, choice.logprobs);
    } else {
      json.null();
    }
    write_finish(json, choice.finish, choice.stop_reason);
    if (shape.token_ids) write_ids(json.key("token_ids"), choice.token_ids);
    json.end_object();
  }
  json.end_array().key("usage");
  write_usage(json, answer.usage);
  if (shape.token_ids && !answer.prompt_token_ids.empty()) {
    write_ids(json.key("prompt_token_ids"), answer.prompt_token_ids.front());
  }
  json.end_object();
  return out;
}

std::string ChatStreamRenderer::render(const serving::Update& update) {
  std::string out;
  if (update.started) {
    for (std::int32_t i = 0; i < shape_.choices; ++i) {
      ChunkWriter chunk(out, head_, i);
      chunk.json().field("role", "assistant").field("content", "");
      chunk.end(shape_, {}, false, false);
      if (i == 0 && shape_.token_ids && !update.prompt_token_ids.empty()) {
        write_ids(chunk.json().key("prompt_token_ids"), update.prompt_token_ids.front());
      }
      chunk.close();
    }
  }
  for (const serving::ChoiceDelta& delta : update.deltas) {
    const bool tokens = (shape_.logprobs && !delta.logprobs.empty()) || (shape_.token_ids && !delta.token_ids.empty());
    if (!delta.text.empty() || tokens) {
      ChunkWriter chunk(out, head_, delta.index);
      chunk.json().field("content", delta.text);
      chunk.end(shape_, delta, true, false);
      chunk.close();
    }
    if (delta.finish != serving::FinishReason::kNone) {
      ChunkWriter chunk(out, head_, delta.index);
      chunk.end(shape_, delta, false, true);
      chunk.close();
    }
  }
  append_stream_end(out, head_, shape_, kChunk, update);
  return out;
}

}  // namespace sterling::protocol::openai
