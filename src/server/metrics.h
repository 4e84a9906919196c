// What /metrics shows, in Prometheus' text format. Names begin with "sterling:". Thread-safe.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "server/precision_facts.h"
#include "serving/service.h"
#include "serving/types.h"

namespace sterling::server {

class Metrics {
 public:
  Metrics(const serving::Service& service, const std::string& version, const PrecisionFacts& facts);
  ~Metrics();

  // Every response.
  void count_response(std::string_view route, int status);
  // A generation's end: "completed", "failed", "cancelled" (the client left) or "refused".
  void count_request(std::string_view outcome, const serving::Usage& usage, std::chrono::steady_clock::duration whole);
  void count_finish(serving::FinishReason reason);
  void observe_first_token(std::chrono::steady_clock::duration after);
  void observe_token_gap(std::chrono::steady_clock::duration gap);
  void set_connections(std::size_t open);

  std::string text() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sterling::server
