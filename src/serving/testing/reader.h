// Test only: reads a Generation to its end on the calling thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "serving/service.h"

namespace sterling::serving::testing {

class Signal {
 public:
  Wake wake() {
    return [state = state_] {
      const std::lock_guard lock(state->mutex);
      state->set = true;
      state->changed.notify_all();
    };
  }
  // False after ten seconds without a signal.
  bool wait() {
    std::unique_lock lock(state_->mutex);
    const bool set = state_->changed.wait_for(lock, std::chrono::seconds(10), [&] { return state_->set; });
    state_->set = false;
    return set;
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool set = false;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

struct Answer {
  std::vector<ChoiceDelta> deltas;
  std::vector<std::string> texts;  // per choice
  std::vector<FinishReason> finishes;
  std::vector<std::vector<TokenLogprobs>> logprobs;
  std::vector<std::vector<std::int32_t>> token_ids;
  std::vector<std::vector<std::int32_t>> prompt_ids;
  std::optional<RequestError> error;
  Usage usage;
  bool timed_out = false;
};

inline Answer read_all(Signal& signal, Generation& generation) {
  Answer answer;
  for (;;) {
    Update update = generation.take();
    if (update.started) answer.prompt_ids = std::move(update.prompt_token_ids);
    for (ChoiceDelta& delta : update.deltas) {
      const auto at = static_cast<std::size_t>(delta.index);
      if (answer.texts.size() <= at) {
        answer.texts.resize(at + 1);
        answer.finishes.resize(at + 1, FinishReason::kNone);
        answer.logprobs.resize(at + 1);
        answer.token_ids.resize(at + 1);
      }
      answer.texts[at] += delta.text;
      if (delta.finish != FinishReason::kNone) answer.finishes[at] = delta.finish;
      for (const auto& entry : delta.logprobs) answer.logprobs[at].push_back(entry);
      for (std::int32_t id : delta.token_ids) answer.token_ids[at].push_back(id);
      answer.deltas.push_back(std::move(delta));
    }
    answer.usage = update.usage;
    answer.error = update.error;
    if (update.error || update.finished) return answer;
    if (!signal.wait()) {
      answer.timed_out = true;
      return answer;
    }
  }
}

inline Answer ask(Service& service, ChatRequest request) {
  Signal signal;
  const auto generation = service.chat(std::move(request), signal.wake());
  return read_all(signal, *generation);
}

inline Answer ask(Service& service, CompletionRequest request) {
  Signal signal;
  const auto generation = service.complete(std::move(request), signal.wake());
  return read_all(signal, *generation);
}

}  // namespace sterling::serving::testing
