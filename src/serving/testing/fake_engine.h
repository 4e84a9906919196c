// Test only: an engine that draws scripted tokens on its own thread, one token per running request and step.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace sterling::serving::testing {

struct FakeEngineOptions {
  // The token at output position `at` of a request; negative: the engine fails there.
  std::function<std::int32_t(const engine::TokenRequest&, std::size_t at)> script;
  std::chrono::microseconds step{0};
  std::size_t max_queue = 1024;
  bool paused = false;  // no step until resume()
};

class FakeEngine : public engine::Engine {
 public:
  explicit FakeEngine(FakeEngineOptions options) : options_(std::move(options)), paused_(options_.paused) {
    thread_ = std::thread([this] { run(); });
  }
  ~FakeEngine() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

  Expected<engine::RequestId> submit(engine::TokenRequest request, std::shared_ptr<engine::EventSink> sink) override {
    const std::lock_guard lock(mutex_);
    if (draining_) return make_error(ErrorCode::kUnavailable, "the engine takes no new requests: it is draining");
    if (running_.size() >= options_.max_queue) {
      return make_error(ErrorCode::kResourceExhausted, "the queue is full");
    }
    const engine::RequestId id = ++stats_.requests_submitted;
    stats_.prompt_tokens += request.prompt.size();
    requests_.push_back(request);
    running_[id] = Running{std::move(request), std::move(sink), 0, false};
    wake_.notify_all();
    return id;
  }
  void cancel(engine::RequestId id) override {
    const std::lock_guard lock(mutex_);
    const auto it = running_.find(id);
    if (it == running_.end() || it->second.cancelled) return;
    it->second.cancelled = true;
    ++stats_.requests_cancelled;
    wake_.notify_all();
  }
  void drain() override {
    const std::lock_guard lock(mutex_);
    draining_ = true;
  }
  bool idle() const override {
    const std::lock_guard lock(mutex_);
    return running_.empty();
  }
  Status run_between_steps(std::int32_t, const BorrowedWork&) override {
    return make_error(ErrorCode::kUnsupported, "a scripted engine has no memory to lend");
  }
  engine::EngineStats stats() const override {
    const std::lock_guard lock(mutex_);
    engine::EngineStats out = stats_;
    out.running = static_cast<std::int32_t>(running_.size());
    return out;
  }

  void resume() {
    const std::lock_guard lock(mutex_);
    paused_ = false;
    wake_.notify_all();
  }
  // Copies of all requests so far.
  std::vector<engine::TokenRequest> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }
  // Waits until `count` requests were cancelled and nothing runs. False after ten seconds.
  bool wait_cancelled(std::uint64_t count) {
    std::unique_lock lock(mutex_);
    return wake_.wait_for(lock, std::chrono::seconds(10),
                          [&] { return stats_.requests_cancelled >= count && running_.empty(); });
  }

 private:
  struct Running {
    engine::TokenRequest request;
    std::shared_ptr<engine::EventSink> sink;
    std::size_t at = 0;
    bool cancelled = false;
  };

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return stop_ || (!running_.empty() && (!paused_ || any_cancelled())); });
      if (stop_) return;
      std::vector<std::pair<std::shared_ptr<engine::EventSink>, engine::TokenEvent>> out;
      for (auto it = running_.begin(); it != running_.end();) {
        if (paused_ && !it->second.cancelled) {
          ++it;
          continue;
        }
        out.emplace_back(it->second.sink, next(it->first, it->second));
        it = out.back().second.finish != engine::FinishReason::kNone ? running_.erase(it) : std::next(it);
      }
      ++stats_.steps;
      lock.unlock();
      for (auto& [sink, event] : out) sink->on_event(event);
      out.clear();
      if (options_.step.count() > 0) std::this_thread::sleep_for(options_.step);
      lock.lock();
      wake_.notify_all();
    }
  }
  bool any_cancelled() const {
    return std::any_of(running_.begin(), running_.end(), [](const auto& r) { return r.second.cancelled; });
  }

  engine::TokenEvent next(engine::RequestId id, Running& r) {
    engine::TokenEvent event;
    event.request = id;
    if (r.cancelled) {
      event.finish = engine::FinishReason::kCancelled;
      return event;
    }
    event.token = options_.script(r.request, r.at);
    if (event.token < 0) {
      event.finish = engine::FinishReason::kError;
      event.error = make_error(ErrorCode::kInternal, "the fake engine was told to fail");
      return event;
    }
    event.has_token = true;
    if (r.request.prompt_logprobs && r.at == 0) {
      for (std::size_t i = 1; i < r.request.prompt.size(); ++i)
        event.prompt_logprobs.push_back(-0.25F * static_cast<float>(i));
    }
    if (r.request.top_logprobs >= 0) {
      event.logprob = -0.1F - static_cast<float>(r.at) / 3.0F;
      for (std::int32_t k = 0; k < r.request.top_logprobs; ++k) {
        event.top.push_back({(event.token + k) % 256, event.logprob - static_cast<float>(k)});
      }
    }
    ++r.at;
    ++stats_.generated_tokens;
    const auto& stops = r.request.stop_token_ids;
    if (static_cast<std::int32_t>(r.at) > r.request.min_tokens &&
        std::find(stops.begin(), stops.end(), event.token) != stops.end()) {
      event.finish = engine::FinishReason::kStop;
    } else if (static_cast<std::int32_t>(r.at) >= r.request.max_tokens) {
      event.finish = engine::FinishReason::kLength;
    }
    if (event.finish != engine::FinishReason::kNone) ++stats_.requests_finished;
    return event;
  }

  FakeEngineOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::map<engine::RequestId, Running> running_;
  std::vector<engine::TokenRequest> requests_;
  engine::EngineStats stats_;
  bool paused_ = false, draining_ = false, stop_ = false;
  std::thread thread_;
};

}  // namespace sterling::serving::testing
