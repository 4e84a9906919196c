// The state of one request between the engine thread, which appends events, and the reader, who takes them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/engine.h"
#include "serving/choice.h"
#include "serving/service.h"
#include "serving/types.h"

namespace sterling::serving {

struct ChoicePlan {
  ChoiceSettings settings;
  engine::TokenRequest request;
};

struct GenerationPlan {
  std::vector<ChoicePlan> choices;  // prompt-major: prompt * choices_per_prompt + i
  std::int32_t choices_per_prompt = 1;
  std::vector<std::vector<std::int32_t>> prompt_ids;  // only where the client wants them back
  std::int64_t prompt_tokens = 0;
  std::shared_ptr<const text::Tokenizer> tokenizer;
};

class GenerationState : public std::enable_shared_from_this<GenerationState> {
 public:
  GenerationState(engine::Engine& engine, Wake wake, std::size_t max_unread)
      : engine_(engine), wake_(std::move(wake)), max_unread_(max_unread) {}

  // Producers.
  bool cancelled() const { return cancelled_.load(); }
  void start(GenerationPlan plan);  // submits every choice or none
  void fail(RequestError error);
  void push(std::int32_t choice, const engine::TokenEvent& event);  // engine thread

  // The reader.
  Update take();
  void cancel();
  bool overrun() const { return overrun_.load(); }

 private:
  struct Pending {
    std::int32_t choice;
    Clock::time_point time;
    engine::TokenEvent event;
  };

  bool submit_all(std::vector<ChoicePlan>& choices);
  void read_event(Pending& pending, Update& update);
  void end(Update& update, std::optional<RequestError> error);

  engine::Engine& engine_;
  const Wake wake_;
  const std::size_t max_unread_;  // events of one choice
  std::size_t unread_limit_ = 0;
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> overrun_{false};

  std::mutex mutex_;  // guards the next block
  std::vector<Pending> pending_;
  std::vector<engine::RequestId> ids_;  // of the choices submitted so far
  std::optional<RequestError> failure_;
  bool started_ = false;
  bool ended_ = false;
  Update first_;  // handed out with the first take() after the start

  // The reader's own once started_ is seen.
  std::vector<Choice> choices_;
  std::int32_t choices_per_prompt_ = 1;
  std::vector<bool> cached_counted_;
  std::size_t unfinished_ = 0;
  Usage usage_;
};

}  // namespace sterling::serving
