// The engine without its thread: holds the live requests, and step() takes all of them one step further. Deterministic: what it does
// depends on the order of calls alone. engine.cc drives it from one thread, tests/sim from none.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "engine/token_history.h"

namespace sterling::engine {

class StepLoop {
 public:
  // An event and who gets it. Events are handed out instead of delivered, so that the caller can publish its counters first.
  struct Delivery {
    std::shared_ptr<EventSink> sink;
    TokenEvent event;
  };

  // `executor` must outlive the loop.
  StepLoop(model::Executor& executor, const EngineOptions& options);

  // The request has passed check_request(); ids ascend.
  void add(RequestId id, TokenRequest request, std::shared_ptr<EventSink> sink);
  // Ends the request with kCancelled; unknown ids are ignored.
  void cancel(RequestId id, std::vector<Delivery>& out);
  void cancel_all(std::vector<Delivery>& out);
  bool has_work() const { return scheduler_.has_work(); }
  // One forward pass and its draws. Appends the events in order of arrival of their requests' slices.
  void step(std::vector<Delivery>& out);

  // Engine::run_between_steps.
  Status borrow(std::int32_t blocks, const Engine::BorrowedWork& work);

  EngineStats stats() const;
  const Scheduler& scheduler() const { return scheduler_; }

 private:
  struct Live {
    Sequence sequence;
    std::shared_ptr<EventSink> sink;
    std::unique_ptr<TokenHistory> history;  // where penalties are asked for
  };
  // One slice of the step: what was asked of the executor, and the rows' offsets.
  struct StepSlice {
    Live* live = nullptr;
    std::vector<std::int32_t> rows;
  };

  Status run_forward(std::span<const PlannedSlice> plan);
  void take_rows(Live& live, std::span<const std::int32_t> rows, std::int32_t first_position, float* logits,
                 std::vector<Delivery>& out);
  Expected<TokenEvent> draw(Live& live, std::span<float> row);
  void end(Live& live, FinishReason reason, const Error* error, std::vector<Delivery>& out);
  void forget(Live& live);

  model::Executor& executor_;
  model::ExecutorLimits limits_;
  Scheduler scheduler_;
  Sampler sampler_;
  std::map<RequestId, std::unique_ptr<Live>> live_;
  EngineStats stats_;

  // Scratch of one step.
  std::vector<StepSlice> step_slices_;
  std::vector<SequenceSlice> slices_;
  std::vector<float> logits_;  // [rows, vocab_size]
};

}  // namespace sterling::engine
