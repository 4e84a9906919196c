// The tokens of one choice become text: detokenising, stop strings and ids, logprobs, finish reason. No threads, no engine calls.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "serving/stop_matcher.h"
#include "serving/types.h"
#include "text/tokenizer.h"

namespace sterling::serving {

struct ChoiceSettings {
  std::int32_t index = 0;
  std::vector<std::string> stop;
  std::vector<std::int32_t> stop_token_ids;  // the request's own
  std::vector<std::int32_t> eos_token_ids;   // the model's, as far as they apply
  bool include_stop_in_output = false;
  bool skip_special_tokens = true;
  bool logprobs = false;
  bool keep_token_ids = false;
  std::int32_t min_tokens = 0;
  bool drop_generated = false;  // max_tokens 0: the one token that the engine must draw is not shown
  // Echo: the text before the answer. `echo_ids` are needed for logprobs and token ids.
  bool echo = false;
  std::string echo_text;
  std::vector<std::int32_t> echo_ids;
};

class Choice {
 public:
  // `tokenizer` may be null: then there is no text.
  Choice(ChoiceSettings settings, std::shared_ptr<const text::Tokenizer> tokenizer);

  // The delta of one event. Nothing when there is nothing to say (a token inside a character, say). Not for kError and kCancelled.
  std::optional<ChoiceDelta> on_event(const engine::TokenEvent& event, Clock::time_point time);

  bool finished() const { return finished_; }
  // A stop string ended the text; the engine does not know yet.
  bool stopped_by_text() const { return stopped_by_text_; }
  std::int64_t generated_tokens() const { return generated_; }

 private:
  void add_echo(const engine::TokenEvent& event, ChoiceDelta& delta);
  void add_token(const engine::TokenEvent& event, bool is_stop_token, ChoiceDelta& delta);
  TokenAlternative alternative(std::int32_t id, float logprob) const;
  std::string decode(std::int32_t id);
  void finish(FinishReason reason, ChoiceDelta& delta);

  ChoiceSettings settings_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::optional<text::IncrementalDecoder> decoder_;
  StopMatcher matcher_;
  std::int64_t generated_ = 0;
  std::int64_t characters_ = 0;  // decoded so far, held back or not
  bool echoed_ = false;
  bool finished_ = false;
  bool stopped_by_text_ = false;
};

}  // namespace sterling::serving
