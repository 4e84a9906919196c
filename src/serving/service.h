// Text in, text out, over an engine that knows only token ids: chat templates, tokenising, defaults, limits, incremental
// detokenising, stop strings, usage.
//
//   Service::chat / complete  →  Generation  →  wake()  →  Generation::take()  →  Update … until error or finished
//
// The work before the engine (template, tokenizer) runs on the service's own threads, the work after it (detokenising, stop
// strings) in take(), on the thread of whoever reads; the engine thread only appends to a queue. A reader that stays away too
// long has its generation cancelled: it can never hold the engine up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "serving/types.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace sterling::serving {

// Used where a request is silent: the checkpoint's generation_config.json. Served in /v1/models.
struct GenerationDefaults {
  float temperature = 1.0F;
  std::int32_t top_k = 0;  // 0 = off
  float top_p = 1.0F;
  float min_p = 0.0F;
  float repetition_penalty = 1.0F;
};

struct ServiceOptions {
  std::vector<std::string> model_names;              // at least one; responses carry the first, requests may use any
  std::shared_ptr<const text::Tokenizer> tokenizer;  // null: token ids only
  std::shared_ptr<const text::ChatTemplate> chat_template;  // null: no chat
  GenerationDefaults defaults;
  std::vector<std::int32_t> eos_token_ids;  // union of config.json, generation_config.json and the tokenizer's
  std::int32_t vocab_size = 0;              // rows of the logits; ids in requests lie below
  std::int32_t max_sequence_tokens = 0;     // prompt and answer together
  std::optional<std::uint64_t> seed;        // for requests without one; absent: each gets its own
  // --- speed and capacity only
  std::int32_t threads = 2;              // for templates and tokenising
  std::size_t max_unread_events = 8192;  // per choice; beyond it the reader counts as gone
  std::int32_t max_choices = 128;        // prompts × n of one request
};

class GenerationState;

// One request on its way. take() is for one reading thread; cancel() and destruction may come from any.
class Generation {
 public:
  explicit Generation(std::shared_ptr<GenerationState> state);
  ~Generation();  // cancels what still runs
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  // Never waits. Empty when nothing happened. After an update with `error` or `finished` there is nothing more.
  Update take();
  // Frees the engine's share; no further wake() is owed.
  void cancel();
  // The reader stayed away for so long that events were dropped: cancel() now, the last update will carry the error.
  bool overrun() const;

 private:
  std::shared_ptr<GenerationState> state_;
};

// Called from any thread when take() has something new; must not block and must not call into the service.
using Wake = std::function<void()>;

struct TokenizeRequest {
  std::string model;
  std::optional<std::string> text;  // this, or messages
  std::string text_param = "prompt";
  bool add_special_tokens = true;
  std::string messages_json;
  std::string template_kwargs_json;
  bool add_generation_prompt = true;
  bool return_token_strings = false;
};

struct TokenizeResult {
  std::vector<std::int32_t> tokens;
  std::vector<std::string> token_strings;  // bytes of each token, where asked
};

struct DetokenizeRequest {
  std::string model;
  std::vector<std::int32_t> tokens;
};

// Thread-safe. `engine` must outlive the service and every Generation.
class Service {
 public:
  Service(engine::Engine& engine, ServiceOptions options);
  ~Service();  // finishes the background work that was begun, drops the rest
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // Never blocks and never fails at once: refusals arrive as an Update with an error.
  std::shared_ptr<Generation> chat(ChatRequest request, Wake wake);
  std::shared_ptr<Generation> complete(CompletionRequest request, Wake wake);

  // These two work on the calling thread; long texts belong into run_in_background().
  Outcome<TokenizeResult> tokenize(const TokenizeRequest& request) const;
  Outcome<std::string> detokenize(const DetokenizeRequest& request) const;

  // One of the service's threads runs the job; dropped unrun when the service ends first. It must not throw.
  void run_in_background(std::function<void()> job);

  bool has_model(std::string_view name) const;  // "" counts as the served one
  const std::vector<std::string>& model_names() const;
  const GenerationDefaults& defaults() const;
  std::int32_t max_sequence_tokens() const;
  // The chat template reads "content" as a list of parts by itself; otherwise the protocol joins text parts to one string.
  bool template_reads_parts() const;

  engine::EngineStats engine_stats() const;
  bool engine_idle() const;
  void drain_engine();  // the engine refuses new requests from now on

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sterling::serving
