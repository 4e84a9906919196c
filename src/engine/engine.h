// The engine: sequences, scheduling, KV blocks, sampling. Token ids only; no text, no JSON, no sockets, no wall clock.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "model/executor.h"

namespace sterling::engine {

using RequestId = std::uint64_t;

// How a token is drawn. Defaults: plain sampling from the model's distribution. Penalties see the prompt's and the generated tokens
// as each says; order of application: logit_bias, repetition, frequency/presence, temperature, top_k, min_p, top_p.
struct SamplingParams {
  float temperature = 1.0F;                                // 0 = greedy (ties go to the lower id)
  std::int32_t top_k = 0;                                  // 0 = off
  float top_p = 1.0F;                                      // (0, 1]
  float min_p = 0.0F;                                      // [0, 1]
  float repetition_penalty = 1.0F;                         // > 0; prompt and output tokens (CTRL paper)
  float frequency_penalty = 0.0F;                          // [-2, 2]; output tokens, times their count (OpenAI)
  float presence_penalty = 0.0F;                           // [-2, 2]; output tokens (OpenAI)
  std::vector<std::pair<std::int32_t, float>> logit_bias;  // token id, added to its logit
  std::uint64_t seed = 0;    // the draw at a position depends on (seed, stream, position) and the logits alone
  std::uint64_t stream = 0;  // which of the `n` choices of a request this is
};

struct TokenRequest {
  std::vector<std::int32_t> prompt;  // 1 … limits; ids in range (checked)
  SamplingParams sampling;
  std::int32_t max_tokens = 16;  // at least 1
  std::int32_t min_tokens = 0;   // stop ids are masked until then
  std::vector<std::int32_t>
      stop_token_ids;              // model's eos ids and the request's own; the stop token is reported, not hidden
  std::int32_t top_logprobs = -1;  // -1: no logprobs; 0: the drawn token's only; k: plus the k best
  bool prompt_logprobs = false;    // logprob of every prompt token but the first
};

enum class FinishReason { kNone, kStop, kLength, kCancelled, kError };

struct TokenLogprob {
  std::int32_t token = 0;
  float logprob = 0.0F;  // natural log, of the distribution before temperature, penalties and truncation
};

// What one step produced for one request.
struct TokenEvent {
  RequestId request = 0;
  bool has_token = false;
  std::int32_t token = 0;
  float logprob = 0.0F;                // valid where logprobs were asked
  std::vector<TokenLogprob> top;       // best first; ties: lower id first
  std::vector<float> prompt_logprobs;  // once, with the first event, where asked ([0] is NaN-free: size = prompt - 1)
  FinishReason finish = FinishReason::kNone;
  std::optional<Error> error;             // with kError
  std::int32_t cached_prompt_tokens = 0;  // prompt tokens that were not computed again
};

// Receives the events of one request, on the engine thread, in order, the last one with finish != kNone; the first may arrive before
// submit() has returned. Must not block, throw or call back into the engine.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void on_event(const TokenEvent& event) = 0;
};

struct EngineOptions {
  std::int32_t max_running = 32;        // sequences in one step
  std::int32_t max_batch_tokens = 512;  // token budget of one step: decode rows first, then prefill chunks
  std::int32_t max_queue = 1024;        // live requests beyond those that can run at once; one more is refused with
                                        // kResourceExhausted
};

// Monotonic counters and current gauges; a consistent copy. They are published before the events of a step are delivered: a request
// whose last event has arrived is counted and holds nothing. prompt_tokens counts a prompt when its first token is drawn.
struct EngineStats {
  std::uint64_t steps = 0;
  std::uint64_t requests_submitted = 0, requests_finished = 0, requests_cancelled = 0, requests_failed = 0;
  std::uint64_t prompt_tokens = 0, generated_tokens = 0, preemptions = 0;
  std::int32_t running = 0, waiting = 0;
  std::int32_t kv_blocks_used = 0, kv_blocks_total = 0;
  std::int32_t state_slots_used = 0, state_slots_total = 0;
};

// Thread-safe front of the engine; owns the engine thread.
class Engine {
 public:
  // Ends what still lives with kCancelled, delivers that, and joins the thread. No call may be in progress or follow.
  virtual ~Engine() = default;
  // Checks the request against the model's limits: empty prompt, ids out of range, prompt + max_tokens beyond max_sequence_tokens
  // (the message has both numbers), a worst case the whole pool can't hold. Never truncates.
  virtual Expected<RequestId> submit(TokenRequest request, std::shared_ptr<EventSink> sink) = 0;
  // The request ends with kCancelled at the next step; unknown or finished ids are ignored.
  virtual void cancel(RequestId id) = 0;
  // No new requests from now on (kUnavailable); those accepted run to their end.
  virtual void drain() = 0;
  // Every accepted request's last event has been delivered.
  virtual bool idle() const = 0;
  virtual EngineStats stats() const = 0;

  // Runs `work` on the engine thread between two steps and waits for it: nothing else uses the executor meanwhile, and running sequences go on
  // afterwards as if nothing had been. It gets `blocks` KV blocks and, where the model has recurrent state, a slot (else -1) that no sequence
  // holds. kResourceExhausted: not that many are free now; kUnavailable: the engine is being destroyed.
  using BorrowedWork = std::function<void(std::span<const std::int32_t> blocks, std::int32_t state_slot)>;
  virtual Status run_between_steps(std::int32_t blocks, const BorrowedWork& work) = 0;
};

// `executor` must outlive the engine. Starts the engine thread. The smaller of the options and executor.limits() holds; max_running is
// cut further to max_batch_tokens and to the state slots, so that every running sequence has its row in every step.
std::unique_ptr<Engine> make_engine(model::Executor& executor, const EngineOptions& options);

}  // namespace sterling::engine
