#include "engine/step_loop.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"

namespace sterling::engine {
namespace {

SchedulerLimits scheduler_limits(const model::ExecutorLimits& model, const EngineOptions& options) {
  SchedulerLimits limits;
  limits.block_tokens = model.block_tokens;
  limits.kv_blocks = model.kv_blocks;
  limits.state_slots = model.state_slots;
  limits.max_running = std::min(options.max_running, model.max_batch_slices);
  limits.max_batch_tokens = std::min(options.max_batch_tokens, model.max_batch_tokens);
  limits.max_logit_rows = model.max_logit_rows > 0 ? model.max_logit_rows : model.max_batch_slices;
  return limits;
}

}  // namespace

StepLoop::StepLoop(model::Executor& executor, const EngineOptions& options)
    : executor_(executor), limits_(executor.limits()), scheduler_(scheduler_limits(executor.limits(), options)) {
  STERLING_CHECK(limits_.vocab_size > 0);
}

void StepLoop::add(RequestId id, TokenRequest request, std::shared_ptr<EventSink> sink) {
  std::unique_ptr<TokenHistory> history;
  if (uses_history(request.sampling)) {
    history = std::make_unique<TokenHistory>();
    history->add_prompt(request.prompt);
  }
  auto live = std::make_unique<Live>(Live{Sequence(id, std::move(request)), std::move(sink), std::move(history)});
  scheduler_.enqueue(live->sequence);
  live_.emplace(id, std::move(live));
  ++stats_.requests_submitted;
}

void StepLoop::cancel(RequestId id, std::vector<Delivery>& out) {
  const auto found = live_.find(id);
  if (found != live_.end()) end(*found->second, FinishReason::kCancelled, nullptr, out);
}

void StepLoop::cancel_all(std::vector<Delivery>& out) {
  while (!live_.empty()) end(*live_.begin()->second, FinishReason::kCancelled, nullptr, out);
}

void StepLoop::step(std::vector<Delivery>& out) {
  const std::span<const PlannedSlice> plan = scheduler_.plan();
  if (plan.empty()) return;
  ++stats_.steps;

  step_slices_.resize(std::max(step_slices_.size(), plan.size()));
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const Sequence& sequence = *plan[i].sequence;
    step_slices_[i].live = live_.at(sequence.id()).get();
    sequence.wanted_rows(plan[i].tokens, step_slices_[i].rows);
  }
  const Status status = run_forward(plan);
  if (!status.ok()) {
    // What these sequences have in the pool is now of unknown worth; the others are untouched.
    const std::size_t failed = plan.size();
    for (std::size_t i = 0; i < failed; ++i) end(*step_slices_[i].live, FinishReason::kError, &status.error(), out);
    return;
  }
  float* logits = logits_.data();
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const std::vector<std::int32_t>& rows = step_slices_[i].rows;
    Live& live = *step_slices_[i].live;
    const std::int32_t first_position = live.sequence.computed();
    live.sequence.advance(plan[i].tokens);
    take_rows(live, rows, first_position, logits, out);
    logits += rows.size() * static_cast<std::size_t>(limits_.vocab_size);
  }
}

Status StepLoop::run_forward(std::span<const PlannedSlice> plan) {
  slices_.clear();
  std::size_t row_count = 0;
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const Sequence& sequence = *plan[i].sequence;
    SequenceSlice slice;
    slice.start_position = sequence.computed();
    slice.tokens = sequence.tokens().subspan(static_cast<std::size_t>(sequence.computed()),
                                             static_cast<std::size_t>(plan[i].tokens));
    slice.block_table = sequence.block_table;
    slice.state_slot = sequence.state_slot;
    slice.logit_rows = step_slices_[i].rows;
    row_count += slice.logit_rows.size();
    slices_.push_back(slice);
  }
  const std::size_t values = row_count * static_cast<std::size_t>(limits_.vocab_size);
  if (logits_.size() < values) logits_.resize(values);
  return executor_.forward(BatchView{slices_}, std::span<float>(logits_.data(), values));
}

// `logits` has one row for each of `rows`, which are offsets from first_position.
void StepLoop::take_rows(Live& live, std::span<const std::int32_t> rows, std::int32_t first_position, float* logits,
                         std::vector<Delivery>& out) {
  Sequence& sequence = live.sequence;
  const auto vocab_size = static_cast<std::size_t>(limits_.vocab_size);
  for (const std::int32_t offset : rows) {
    const std::span<float> row(logits, vocab_size);
    logits += vocab_size;
    const std::int32_t next = first_position + offset + 1;  // the position that this row speaks of
    if (next < sequence.prompt_size()) {
      const Expected<float> logprob = sampler_.logprob(row, sequence.tokens()[static_cast<std::size_t>(next)], next);
      if (!logprob.ok()) return end(live, FinishReason::kError, &logprob.error(), out);
      sequence.add_prompt_logprob(*logprob);
      continue;
    }
    Expected<TokenEvent> event = draw(live, row);
    if (!event.ok()) return end(live, FinishReason::kError, &event.error(), out);
    out.push_back({live.sink, std::move(event).value()});
    if (sequence.phase() == SequencePhase::kFinished) forget(live);
    return;
  }
}

Expected<TokenEvent> StepLoop::draw(Live& live, std::span<float> row) {
  Sequence& sequence = live.sequence;
  DrawRequest request;
  request.params = &sequence.request().sampling;
  request.history = live.history.get();
  request.masked = sequence.masked();
  request.position = sequence.size();
  request.top_logprobs = sequence.request().top_logprobs;
  Expected<DrawResult> drawn = sampler_.draw(row, request);
  if (!drawn.ok()) return drawn.error();

  TokenEvent event;
  event.request = sequence.id();
  event.has_token = true;
  event.token = drawn->token;
  event.logprob = drawn->logprob;
  event.top = std::move(drawn->top);
  if (sequence.generated() == 0) {
    event.prompt_logprobs = sequence.take_prompt_logprobs();
    stats_.prompt_tokens += static_cast<std::uint64_t>(sequence.prompt_size());
  }
  sequence.append(event.token);
  if (live.history != nullptr) live.history->add_output(event.token);
  ++stats_.generated_tokens;
  event.finish = sequence.finish_reason();
  if (event.finish != FinishReason::kNone) ++stats_.requests_finished;
  return event;
}

// Ends a request from outside: its last event has no token.
void StepLoop::end(Live& live, FinishReason reason, const Error* error, std::vector<Delivery>& out) {
  TokenEvent event;
  event.request = live.sequence.id();
  event.finish = reason;
  if (error != nullptr) event.error = *error;
  ++(reason == FinishReason::kCancelled ? stats_.requests_cancelled : stats_.requests_failed);
  live.sequence.finish(reason);
  out.push_back({live.sink, std::move(event)});
  forget(live);
}

void StepLoop::forget(Live& live) {
  scheduler_.remove(live.sequence);
  live_.erase(live.sequence.id());
}

Status StepLoop::borrow(std::int32_t blocks, const Engine::BorrowedWork& work) {
  const auto loan = scheduler_.borrow(blocks);
  if (!loan) {
    return make_error(
        ErrorCode::kResourceExhausted,
        fmt::format("{} KV blocks{} are needed beside the running requests; {} blocks and {} state slots are free: try "
                    "again when less is running",
                    blocks, limits_.state_slots > 0 ? " and a state slot" : "", scheduler_.blocks().free(),
                    scheduler_.slots().free()));
  }
  work(loan->blocks, loan->state_slot);
  scheduler_.give_back(*loan);
  return {};
}

EngineStats StepLoop::stats() const {
  EngineStats stats = stats_;
  stats.preemptions = scheduler_.preemptions();
  stats.running = static_cast<std::int32_t>(scheduler_.running().size());
  stats.waiting = scheduler_.waiting();
  stats.kv_blocks_used = scheduler_.blocks().used();
  stats.kv_blocks_total = scheduler_.blocks().total();
  stats.state_slots_used = scheduler_.slots().used();
  stats.state_slots_total = scheduler_.slots().total();
  return stats;
}

}  // namespace sterling::engine
