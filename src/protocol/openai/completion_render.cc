#include "protocol/openai/pieces.h"
#include "protocol/openai/render.h"

namespace sterling::protocol::openai {
namespace {

constexpr std::string_view kObject = "text_completion";  // chunks and whole answers alike

// One choice object. `prompt_ids` may be null.
void write_choice(JsonWriter& json, const ResponseShape& shape, std::int64_t index,
                  const serving::CollectedChoice& choice, bool with_logprobs,
                  const std::vector<std::int32_t>* prompt_ids) {
  json.begin_object().field("index", index).field("text", choice.text).key("logprobs");
  if (with_logprobs) {
    write_completion_logprobs(json, choice.logprobs);
  } else {
    json.null();
  }
  write_finish(json, choice.finish, choice.stop_reason);
  if (shape.token_ids) write_ids(json.key("token_ids"), choice.token_ids);
  if (prompt_ids != nullptr) write_ids(json.key("prompt_token_ids"), *prompt_ids);
  json.end_object();
}

}  // namespace

ResponseShape ResponseShape::of(const serving::CompletionRequest& request) {
  return {.logprobs = request.options.logprobs.has_value(),
          .token_ids = request.options.return_token_ids,
          .include_usage = request.stream.include_usage,
          .choices = request.options.n * static_cast<std::int32_t>(request.prompts.size()),
          .choices_per_prompt = request.options.n};
}

std::string render_completion(const ResponseHead& head, const ResponseShape& shape,
                              const serving::CollectedAnswer& answer) {
  std::string out;
  JsonWriter json(out);
  begin_response(json, head, kObject);
  json.key("choices").begin_array();
  for (std::size_t i = 0; i < answer.choices.size(); ++i) {
    const std::size_t prompt = i / static_cast<std::size_t>(shape.choices_per_prompt);
    const bool ids = shape.token_ids && prompt < answer.prompt_token_ids.size();
    write_choice(json, shape, static_cast<std::int64_t>(i), answer.choices[i], shape.logprobs,
                 ids ? &answer.prompt_token_ids[prompt] : nullptr);
  }
  json.end_array().key("usage");
  write_usage(json, answer.usage);
  json.end_object();
  return out;
}

std::string CompletionStreamRenderer::render(const serving::Update& update) {
  std::string out;
  if (update.started) {
    prompt_ids_ = update.prompt_token_ids;
    began_.assign(static_cast<std::size_t>(shape_.choices), false);
  }
  const auto event = [&](std::int32_t index, const serving::CollectedChoice& choice, bool logprobs) {
    const auto at = static_cast<std::size_t>(index);
    const std::size_t prompt = at / static_cast<std::size_t>(shape_.choices_per_prompt);
    const bool ids = shape_.token_ids && !began_[at] && prompt < prompt_ids_.size();
    began_[at] = true;
    out += kEventBegin;
    JsonWriter json(out);
    begin_response(json, head_, kObject);
    json.key("choices").begin_array();
    write_choice(json, shape_, index, choice, logprobs, ids ? &prompt_ids_[prompt] : nullptr);
    json.end_array();
    if (shape_.include_usage) json.key("usage").null();
    json.end_object();
    out += kEventEnd;
  };
  for (const serving::ChoiceDelta& delta : update.deltas) {
    const bool tokens = (shape_.logprobs && !delta.logprobs.empty()) || (shape_.token_ids && !delta.token_ids.empty());
    if (!delta.text.empty() || tokens) {
      serving::CollectedChoice choice;
      choice.text = delta.text;
      choice.token_ids = delta.token_ids;
      choice.logprobs = delta.logprobs;
      event(delta.index, choice, shape_.logprobs && !delta.logprobs.empty());
    }
    if (delta.finish != serving::FinishReason::kNone) {
      serving::CollectedChoice choice;
      choice.finish = delta.finish;
      choice.stop_reason = delta.stop_reason;
      event(delta.index, choice, false);
    }
  }
  append_stream_end(out, head_, shape_, kObject, update);
  return out;
}

}  // namespace sterling::protocol::openai
