#include "serving/choice.h"

#include <algorithm>
#include <utility>

namespace sterling::serving {
namespace {

bool contains(const std::vector<std::int32_t>& ids, std::int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// Characters (code points) of valid UTF-8.
std::int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
}

}  // namespace

Choice::Choice(ChoiceSettings settings, std::shared_ptr<const text::Tokenizer> tokenizer)
    : settings_(std::move(settings)),
      tokenizer_(std::move(tokenizer)),
      matcher_(settings_.stop, settings_.include_stop_in_output) {
  if (tokenizer_) decoder_.emplace(tokenizer_, settings_.skip_special_tokens);
}

std::optional<ChoiceDelta> Choice::on_event(const engine::TokenEvent& event, Clock::time_point time) {
  if (finished_) return std::nullopt;
  ChoiceDelta delta;
  delta.index = settings_.index;
  delta.time = time;
  if (settings_.echo && !echoed_) add_echo(event, delta);

  const bool stop_token =
      event.has_token && event.finish == engine::FinishReason::kStop &&
      (contains(settings_.eos_token_ids, event.token) || contains(settings_.stop_token_ids, event.token));
  if (event.has_token && !settings_.drop_generated) add_token(event, stop_token, delta);
  if (!finished_) {
    if (event.finish == engine::FinishReason::kStop && !settings_.drop_generated) {
      if (contains(settings_.stop_token_ids, event.token)) delta.stop_reason = event.token;
      finish(FinishReason::kStop, delta);
    } else if (event.finish != engine::FinishReason::kNone) {
      finish(FinishReason::kLength, delta);
    }
  }
  const bool silent = delta.text.empty() && delta.token_ids.empty() && delta.logprobs.empty() &&
                      delta.generated_tokens == 0 && delta.finish == FinishReason::kNone;
  return silent ? std::nullopt : std::optional(std::move(delta));
}

void Choice::add_echo(const engine::TokenEvent& event, ChoiceDelta& delta) {
  echoed_ = true;
  delta.text = std::move(settings_.echo_text);
  if (settings_.keep_token_ids) delta.token_ids = settings_.echo_ids;
  if (settings_.logprobs) {
    std::optional<text::IncrementalDecoder> decoder;
    if (tokenizer_) decoder.emplace(tokenizer_, settings_.skip_special_tokens);
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < settings_.echo_ids.size(); ++i) {
      TokenLogprobs entry;
      const bool known = i > 0 && i - 1 < event.prompt_logprobs.size();
      entry.token = alternative(settings_.echo_ids[i], known ? event.prompt_logprobs[i - 1] : 0.0F);
      entry.has_logprob = known;
      entry.has_top = false;
      entry.text_offset = offset;
      if (decoder) offset += count_characters(decoder->push(settings_.echo_ids[i]));
      delta.logprobs.push_back(std::move(entry));
    }
  }
  characters_ = count_characters(delta.text);
}

void Choice::add_token(const engine::TokenEvent& event, bool is_stop_token, ChoiceDelta& delta) {
  ++generated_;
  delta.generated_tokens = 1;
  if (settings_.keep_token_ids) delta.token_ids.push_back(event.token);
  if (settings_.logprobs) {
    TokenLogprobs entry;
    entry.token = alternative(event.token, event.logprob);
    entry.top.reserve(event.top.size());
    for (const engine::TokenLogprob& t : event.top) entry.top.push_back(alternative(t.token, t.logprob));
    entry.text_offset = characters_;
    delta.logprobs.push_back(std::move(entry));
  }
  // A stop token is part of the answer's tokens and not of its text.
  if (is_stop_token && !settings_.include_stop_in_output) return;
  const std::string text = decode(event.token);
  delta.text += matcher_.push(text, generated_ >= settings_.min_tokens);
  if (matcher_.matched()) {
    delta.stop_reason = *matcher_.matched();
    stopped_by_text_ = true;
    finish(FinishReason::kStop, delta);
  }
}

void Choice::finish(FinishReason reason, ChoiceDelta& delta) {
  finished_ = true;
  delta.finish = reason;
  if (matcher_.matched()) return;
  if (decoder_) delta.text += matcher_.push(decoder_->flush(), generated_ >= settings_.min_tokens);
  if (matcher_.matched()) {
    delta.finish = FinishReason::kStop;
    delta.stop_reason = *matcher_.matched();
  } else {
    delta.text += matcher_.flush();
  }
}

TokenAlternative Choice::alternative(std::int32_t id, float logprob) const {
  TokenAlternative out;
  out.id = id;
  out.logprob = logprob;
  if (tokenizer_) out.bytes = std::string(tokenizer_->token_bytes(id));
  return out;
}

std::string Choice::decode(std::int32_t id) {
  if (!decoder_) return {};
  std::string text = decoder_->push(id);
  characters_ += count_characters(text);
  return text;
}

}  // namespace sterling::serving
