// What a client asks for and what it gets, as plain values: no JSON, no sockets, no engine types. Protocols (OpenAI's, later
// Anthropic's) parse into these and render from them.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"

namespace sterling::serving {

using Clock = std::chrono::steady_clock;

// Why a request was refused or broke off. `param` is the path of the field in the request ("messages[2].content", "prompt[0]"),
// `reason` a stable word for programs.
struct RequestError {
  ErrorCode code = ErrorCode::kInvalidArgument;
  std::string message;
  std::string param;
  std::string reason;
};

// The reasons that more than one layer names.
inline constexpr char kInvalidValue[] = "invalid_value";
inline constexpr char kInvalidType[] = "invalid_type";
inline constexpr char kMissingParameter[] = "missing_required_parameter";
inline constexpr char kUnsupportedParameter[] = "unsupported_parameter";
inline constexpr char kUnknownParameter[] = "unknown_parameter";
inline constexpr char kContextLength[] = "context_length_exceeded";
inline constexpr char kModelNotFound[] = "model_not_found";
inline constexpr char kQueueFull[] = "queue_full";
inline constexpr char kSlowClient[] = "slow_client";

// A value or a RequestError; what Expected is for Error.
template <typename T>
class [[nodiscard]] Outcome {
 public:
  Outcome(T value) : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT(google-explicit-constructor)
  Outcome(RequestError error)
      : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() { return std::get<0>(state_); }
  const T& value() const { return std::get<0>(state_); }
  T& operator*() { return value(); }
  const T& operator*() const { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const RequestError& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, RequestError> state_;
};

// Fields that chat and plain completions share. An absent optional takes the model's default (Service::defaults()).
struct GenerationOptions {
  std::optional<float> temperature, top_p, min_p, repetition_penalty, frequency_penalty, presence_penalty;
  std::optional<std::int32_t> top_k;
  std::vector<std::pair<std::int32_t, float>> logit_bias;
  std::optional<std::uint64_t> seed;
  std::optional<std::int64_t> max_tokens;       // absent: what the context still holds (chat), 16 (completions)
  std::string max_tokens_param = "max_tokens";  // as the client spelled it, for messages
  std::int32_t min_tokens = 0;
  std::int32_t n = 1;
  std::vector<std::string> stop;
  std::vector<std::int32_t> stop_token_ids;
  bool ignore_eos = false;
  bool include_stop_in_output = false;
  bool skip_special_tokens = true;
  std::optional<std::int32_t> logprobs;  // absent: none; k: the drawn token's and the k best
  bool return_token_ids = false;
};

struct StreamOptions {
  bool stream = false;
  bool include_usage = false;
};

struct ChatRequest {
  std::string model;                 // empty: the one that is served
  std::string messages_json;         // list of objects, checked by the protocol, as the template sees them
  std::string template_kwargs_json;  // object, or empty
  bool add_generation_prompt = true;
  GenerationOptions options;
  StreamOptions stream;
};

using Prompt = std::variant<std::string, std::vector<std::int32_t>>;

struct CompletionRequest {
  std::string model;
  std::vector<Prompt> prompts;     // at least one; choice index = prompt * n + i
  bool prompt_is_list = false;     // for messages: "prompt" or "prompt[i]"
  bool add_special_tokens = true;  // text prompts
  bool echo = false;               // the text starts with the prompt; max_tokens may be 0
  GenerationOptions options;
  StreamOptions stream;
};

// A token as the logprobs fields show it.
struct TokenAlternative {
  std::int32_t id = 0;
  std::string bytes;  // may be part of a character
  float logprob = 0.0F;
};

struct TokenLogprobs {
  TokenAlternative token;
  bool has_logprob = true;            // false: the first token of an echoed prompt
  bool has_top = true;                // false: echoed prompt
  std::vector<TokenAlternative> top;  // best first
  std::int64_t text_offset = 0;       // characters of the choice's text before this token
};

enum class FinishReason { kNone, kStop, kLength };

struct ChoiceDelta {
  std::int32_t index = 0;
  std::string text;  // whole characters; may be empty
  std::vector<std::int32_t> token_ids;
  std::vector<TokenLogprobs> logprobs;  // where asked: one entry per generated token, the stop token included
  FinishReason finish = FinishReason::kNone;
  std::variant<std::monostate, std::int32_t, std::string>
      stop_reason;                    // the request's own stop id or string that matched
  Clock::time_point time;             // when the engine produced it
  std::int32_t generated_tokens = 0;  // tokens of this delta that the model drew
};

struct Usage {
  std::int64_t prompt_tokens = 0;      // each prompt once, whatever n
  std::int64_t completion_tokens = 0;  // all choices; the stop token counts
  std::int64_t cached_tokens = 0;
  std::int64_t reasoning_tokens = 0;
};

// What happened since the last look at a generation.
struct Update {
  bool started = false;                                     // once: the engine accepted every choice
  std::vector<std::vector<std::int32_t>> prompt_token_ids;  // with `started`, one list per prompt
  std::vector<ChoiceDelta> deltas;
  std::optional<RequestError> error;  // the last update: nothing follows
  bool finished = false;              // the last update: every choice has its finish reason
  Usage usage;                        // so far; final with `finished`
};

}  // namespace sterling::serving
