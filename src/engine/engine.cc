// The engine's thread and mailbox around StepLoop. Callers' threads only check requests and leave messages; the engine thread
// alone touches sequences, the executor and the sinks.
#include "engine/engine.h"

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "engine/request_check.h"
#include "engine/step_loop.h"

namespace sterling::engine {
namespace {

class ThreadedEngine final : public Engine {
 public:
  ThreadedEngine(model::Executor& executor, const EngineOptions& options)
      : options_(options), limits_(executor.limits()), loop_(executor, options) {
    STERLING_CHECK(options.max_queue >= 0);
    max_live_ = static_cast<std::int64_t>(loop_.scheduler().max_running()) + options.max_queue;
    published_ = loop_.stats();
    thread_ = std::thread([this] { run(); });
  }

  ~ThreadedEngine() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

  ThreadedEngine(const ThreadedEngine&) = delete;
  ThreadedEngine& operator=(const ThreadedEngine&) = delete;

  Expected<RequestId> submit(TokenRequest request, std::shared_ptr<EventSink> sink) override {
    STERLING_CHECK(sink != nullptr);
    if (Status status = check_request(request, limits_); !status.ok()) return status.error();
    RequestId id = 0;
    {
      const std::lock_guard lock(mutex_);
      if (draining_ || stopping_) {
        return make_error(ErrorCode::kUnavailable, "the server is shutting down and takes no new requests");
      }
      if (live_ >= max_live_) {
        return make_error(ErrorCode::kResourceExhausted,
                          fmt::format("the queue is full: {} requests are running or waiting, which is the limit ({} "
                                      "running and {} waiting)",
                                      live_, max_live_ - options_.max_queue, options_.max_queue));
      }
      id = ++last_id_;
      ++live_;
      submissions_.push_back({id, std::move(request), std::move(sink)});
    }
    wake_.notify_one();
    return id;
  }

  void cancel(RequestId id) override {
    {
      const std::lock_guard lock(mutex_);
      cancels_.push_back(id);
    }
    wake_.notify_one();
  }

  void drain() override {
    const std::lock_guard lock(mutex_);
    draining_ = true;
  }

  bool idle() const override {
    const std::lock_guard lock(mutex_);
    return live_ == 0;
  }

  Status run_between_steps(std::int32_t blocks, const BorrowedWork& work) override {
    Errand errand{blocks, &work, {}, false};
    std::unique_lock lock(mutex_);
    if (stopping_) return stopped();
    errands_.push_back(&errand);
    wake_.notify_one();
    errand_done_.wait(lock, [&errand] { return errand.done; });
    return errand.status;
  }

  EngineStats stats() const override {
    const std::lock_guard lock(mutex_);
    EngineStats stats = published_;
    stats.requests_submitted += submissions_.size();
    stats.waiting += static_cast<std::int32_t>(submissions_.size());
    return stats;
  }

 private:
  struct Submission {
    RequestId id = 0;
    TokenRequest request;
    std::shared_ptr<EventSink> sink;
  };

  // Work between steps, on the stack of the thread that waits for it.
  struct Errand {
    std::int32_t blocks = 0;
    const BorrowedWork* work = nullptr;
    Status status;
    bool done = false;  // under mutex_
  };

  static Error stopped() { return make_error(ErrorCode::kUnavailable, "the server is shutting down"); }

  void run_errands(const std::vector<Errand*>& errands, bool stop) {
    for (Errand* errand : errands) {
      errand->status = stop ? Status(stopped()) : loop_.borrow(errand->blocks, *errand->work);
    }
    const std::lock_guard lock(mutex_);
    for (Errand* errand : errands) errand->done = true;
    errand_done_.notify_all();
  }

  void run() {
    std::vector<Errand*> errands;
    std::vector<Submission> submissions;
    std::vector<RequestId> cancels;
    std::vector<StepLoop::Delivery> deliveries;
    bool stop = false;
    while (!stop) {
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [this] {
          return stopping_ || !submissions_.empty() || !cancels_.empty() || !errands_.empty() || loop_.has_work();
        });
        stop = stopping_;
        submissions.swap(submissions_);
        cancels.swap(cancels_);
        errands.swap(errands_);
        for (Submission& s : submissions) loop_.add(s.id, std::move(s.request), std::move(s.sink));
        publish();  // in the same breath, so that no reader misses a submission between mailbox and loop
      }
      for (const RequestId id : cancels) loop_.cancel(id, deliveries);
      submissions.clear();
      cancels.clear();
      if (!errands.empty()) run_errands(errands, stop);
      errands.clear();
      if (stop) {
        loop_.cancel_all(deliveries);
      } else {
        loop_.step(deliveries);
      }
      deliver(deliveries);
    }
  }

  void publish() { published_ = loop_.stats(); }  // under mutex_

  // Counters first: who has seen a request's last event finds it counted and its memory free. idle() turns true only after the
  // last event has been delivered.
  void deliver(std::vector<StepLoop::Delivery>& deliveries) {
    {
      const std::lock_guard lock(mutex_);
      publish();
    }
    std::int64_t finished = 0;
    for (StepLoop::Delivery& delivery : deliveries) {
      delivery.sink->on_event(delivery.event);
      if (delivery.event.finish != FinishReason::kNone) ++finished;
    }
    deliveries.clear();  // the engine's references to sinks go before idle() can turn true
    const std::lock_guard lock(mutex_);
    live_ -= finished;
  }

  const EngineOptions options_;
  const model::ExecutorLimits limits_;
  std::int64_t max_live_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable errand_done_;
  // Under mutex_:
  std::vector<Submission> submissions_;
  std::vector<RequestId> cancels_;
  std::vector<Errand*> errands_;
  EngineStats published_;
  RequestId last_id_ = 0;
  std::int64_t live_ = 0;  // accepted, last event not yet delivered
  bool draining_ = false;
  bool stopping_ = false;

  StepLoop loop_;  // the engine thread's, once it runs
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Engine> make_engine(model::Executor& executor, const EngineOptions& options) {
  return std::make_unique<ThreadedEngine>(executor, options);
}

}  // namespace sterling::engine
