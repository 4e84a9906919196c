// Greedy answers with logprobs from any server that speaks OpenAI's API, over plain HTTP.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <boost/json.hpp>

#include "base/status.h"
#include "cli/chat_client.h"
#include "lab/audit_servers.h"

namespace sterling::cli {

// One prompt as its API takes it.
struct LogprobRequest {
  bool chat = false;
  boost::json::value prompt;  // text or a list of ids; with `chat` a list of messages
  std::int32_t steps = 0;
  std::int32_t top = 0;  // alternatives per step
};

class LogprobClient {
 public:
  LogprobClient(std::string url, ServerUrl parsed, std::optional<std::string> api_key, std::function<bool()> stopped)
      : name_(std::move(url)), url_(std::move(parsed)), api_key_(std::move(api_key)), stopped_(std::move(stopped)) {}

  const std::string& name() const { return name_; }
  // The model to ask for, and what the server says of its precision if it is one of ours.
  Status connect(const std::optional<std::string>& model);
  const std::string& model() const { return model_; }
  const std::optional<std::string>& manifest() const { return manifest_; }

  // Errors name the server. kUnsupported: it sends no logprobs.
  Expected<lab::ServerAnswer> ask(const LogprobRequest& request) const;

 private:
  Expected<std::string> exchange_json(const std::string& target, const std::optional<std::string>& body,
                                      int* status) const;
  Error wrong(std::string message) const;

  std::string name_;
  ServerUrl url_;
  std::optional<std::string> api_key_;
  std::function<bool()> stopped_;
  std::string model_;
  std::optional<std::string> manifest_;
};

}  // namespace sterling::cli
