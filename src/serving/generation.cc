#include "serving/generation.h"

#include <utility>

namespace sterling::serving {
namespace {

class ChoiceSink : public engine::EventSink {
 public:
  ChoiceSink(std::shared_ptr<GenerationState> state, std::int32_t choice) : state_(std::move(state)), choice_(choice) {}
  void on_event(const engine::TokenEvent& event) override { state_->push(choice_, event); }

 private:
  std::shared_ptr<GenerationState> state_;
  std::int32_t choice_;
};

RequestError from_engine(const Error& error) {
  RequestError out{error.code, error.message, error.where, {}};
  if (error.code == ErrorCode::kResourceExhausted) out.reason = kQueueFull;
  return out;
}

RequestError slow_reader() {
  return {ErrorCode::kCancelled,
          "the answer was not read for so long that it was dropped; read the stream while it arrives",
          {},
          kSlowClient};
}

}  // namespace

void GenerationState::start(GenerationPlan plan) {
  choices_per_prompt_ = plan.choices_per_prompt;
  usage_.prompt_tokens = plan.prompt_tokens;
  unfinished_ = plan.choices.size();
  cached_counted_.assign(plan.choices.size() / static_cast<std::size_t>(plan.choices_per_prompt), false);
  unread_limit_ = max_unread_ * plan.choices.size();  // before the first event can come
  choices_.reserve(plan.choices.size());
  for (ChoicePlan& choice : plan.choices) choices_.emplace_back(std::move(choice.settings), plan.tokenizer);
  if (!submit_all(plan.choices)) return;
  {
    const std::lock_guard lock(mutex_);
    first_.started = true;
    first_.prompt_token_ids = std::move(plan.prompt_ids);
    started_ = true;
  }
  wake_();
}

bool GenerationState::submit_all(std::vector<ChoicePlan>& choices) {
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (cancelled()) return false;
    auto sink = std::make_shared<ChoiceSink>(shared_from_this(), static_cast<std::int32_t>(i));
    Expected<engine::RequestId> id = engine_.submit(std::move(choices[i].request), std::move(sink));
    if (!id) {
      std::vector<engine::RequestId> accepted;
      {
        const std::lock_guard lock(mutex_);
        accepted = ids_;
      }
      for (engine::RequestId other : accepted) engine_.cancel(other);
      fail(from_engine(id.error()));
      return false;
    }
    bool too_late = false;
    {
      const std::lock_guard lock(mutex_);
      ids_.push_back(*id);
      too_late = cancelled();
    }
    if (too_late) engine_.cancel(*id);
  }
  return true;
}

void GenerationState::fail(RequestError error) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = std::move(error);
  }
  wake_();
}

void GenerationState::push(std::int32_t choice, const engine::TokenEvent& event) {
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    if (cancelled() || overrun_) return;
    if (pending_.size() >= unread_limit_) {
      overrun_ = true;
      wake = true;
    } else {
      wake = started_ && pending_.empty();
      pending_.push_back(Pending{choice, Clock::now(), event});
    }
  }
  if (wake) wake_();
}

Update GenerationState::take() {
  Update update;
  std::vector<Pending> events;
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return update;
    if (failure_) {
      ended_ = true;
      update.error = failure_;
      return update;
    }
    if (!started_) {
      if (!overrun_) return update;
      ended_ = true;
      update.error = slow_reader();
      return update;
    }
    update = std::exchange(first_, {});
    events.swap(pending_);
  }
  for (Pending& pending : events) {
    read_event(pending, update);
    if (update.error) break;
  }
  update.usage = usage_;
  if (update.error) {
    end(update, std::move(update.error));
  } else if (unfinished_ == 0) {
    update.finished = true;
    end(update, std::nullopt);
  } else if (overrun()) {
    end(update, slow_reader());
  }
  return update;
}

void GenerationState::read_event(Pending& pending, Update& update) {
  Choice& choice = choices_[static_cast<std::size_t>(pending.choice)];
  if (choice.finished()) return;
  const engine::TokenEvent& event = pending.event;
  const auto prompt = static_cast<std::size_t>(pending.choice / choices_per_prompt_);
  if (!cached_counted_[prompt] && pending.choice % choices_per_prompt_ == 0) {
    cached_counted_[prompt] = true;
    usage_.cached_tokens += event.cached_prompt_tokens;
  }
  if (event.finish == engine::FinishReason::kError) {
    update.error =
        event.error ? from_engine(*event.error) : RequestError{ErrorCode::kInternal, "the engine failed", {}, {}};
    update.error->param.clear();
    return;
  }
  if (event.finish == engine::FinishReason::kCancelled) {
    update.error = RequestError{ErrorCode::kCancelled, "the server cancelled the request", {}, "cancelled"};
    return;
  }
  const std::int64_t before = choice.generated_tokens();
  std::optional<ChoiceDelta> delta = choice.on_event(event, pending.time);
  usage_.completion_tokens += choice.generated_tokens() - before;
  if (delta) update.deltas.push_back(std::move(*delta));
  if (!choice.finished()) return;
  --unfinished_;
  if (!choice.stopped_by_text()) return;
  engine::RequestId id = 0;
  {
    const std::lock_guard lock(mutex_);
    if (cancelled()) return;  // that took the ids along
    id = ids_[static_cast<std::size_t>(pending.choice)];
  }
  engine_.cancel(id);
}

void GenerationState::end(Update& update, std::optional<RequestError> error) {
  update.error = std::move(error);
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  if (update.error) cancel();
}

void GenerationState::cancel() {
  std::vector<engine::RequestId> ids;
  {
    const std::lock_guard lock(mutex_);
    if (cancelled_.exchange(true)) return;
    ids.swap(ids_);
    pending_.clear();
    pending_.shrink_to_fit();
    // With everything read the ids are of the past: unknown to the engine, ignored by it.
  }
  for (engine::RequestId id : ids) engine_.cancel(id);
}

Generation::Generation(std::shared_ptr<GenerationState> state) : state_(std::move(state)) {}
Generation::~Generation() {
  state_->cancel();
}
Update Generation::take() {
  return state_->take();
}
void Generation::cancel() {
  state_->cancel();
}
bool Generation::overrun() const {
  return state_->overrun();
}

}  // namespace sterling::serving
