// When to try again, and how long to wait before. Thread-safe where said.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "hub/http.h"

namespace sterling::hub {

struct RetryPolicy {
  int attempts = 6;                           // in a row without progress
  std::chrono::milliseconds first_wait{500};  // doubled from attempt to attempt
  std::chrono::milliseconds longest_wait{30000};
  std::chrono::milliseconds longest_asked{300000};  // of a Retry-After; a longer one ends the command and is told
};

// 408, 429 and the 5xx that pass by themselves.
bool is_passing(int status);

// The wait that a reply asks for by Retry-After, in seconds or as a date (counted from the reply's own Date where it has one).
std::optional<std::chrono::milliseconds> retry_after(const HttpReply& reply, std::int64_t unix_now);

// One task's failures in a row.
class Retries {
 public:
  Retries(const RetryPolicy& policy, std::uint64_t seed) : policy_(policy), random_(seed) {}

  // After a failure: how long to wait before the next attempt; nothing when the attempts are used up.
  std::optional<std::chrono::milliseconds> after_failure();
  void progressed() { failures_ = 0; }
  int failures() const { return failures_; }

 private:
  RetryPolicy policy_;
  std::uint64_t random_;
  int failures_ = 0;
};

// A moment before which nobody asks the hub anything: one worker's 429 is everybody's. Thread-safe.
class Gate {
 public:
  void close_for(std::chrono::milliseconds time);
  std::chrono::milliseconds remaining() const;  // 0: open

 private:
  mutable std::mutex mutex_;
  std::chrono::steady_clock::time_point open_at_{};
};

}  // namespace sterling::hub
