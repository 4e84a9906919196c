#include "engine/request_check.h"

#include <limits>
#include <span>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace sterling::engine {
namespace {

Error refuse(std::string_view field, std::string message) {
  return make_error(ErrorCode::kInvalidArgument, std::move(message), std::string(field));
}

Status check_ids(std::string_view field, std::span<const std::int32_t> ids, std::int32_t vocab_size) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < vocab_size) continue;
    return refuse(field,
                  fmt::format("{}[{}] is token id {}; the model's ids are 0 to {}", field, i, ids[i], vocab_size - 1));
  }
  return {};
}

// `value` must lie in [low, high]; NaN does not.
Status check_range(std::string_view field, double value, double low, double high, std::string_view accepted) {
  if (value >= low && value <= high) return {};
  return refuse(field, fmt::format("{} is {}; accepted: {}", field, value, accepted));
}

Status check_sampling(const SamplingParams& params, std::int32_t vocab_size) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  constexpr double kSmallest = std::numeric_limits<float>::denorm_min();
  const Status checks[] = {
      check_range("temperature", params.temperature, 0.0, kLargest, "a finite number, 0 (greedy) or more"),
      check_range("top_k", params.top_k, 0, std::numeric_limits<std::int32_t>::max(), "0 (off) or more"),
      check_range("top_p", params.top_p, kSmallest, 1.0, "above 0, at most 1"),
      check_range("min_p", params.min_p, 0.0, 1.0, "0 to 1"),
      check_range("repetition_penalty", params.repetition_penalty, kSmallest, kLargest, "a finite number above 0"),
      check_range("frequency_penalty", params.frequency_penalty, -2.0, 2.0, "-2 to 2"),
      check_range("presence_penalty", params.presence_penalty, -2.0, 2.0, "-2 to 2"),
  };
  for (const Status& status : checks) {
    if (!status.ok()) return status;
  }
  for (const auto& [token, bias] : params.logit_bias) {
    if (token < 0 || token >= vocab_size) {
      return refuse("logit_bias",
                    fmt::format("logit_bias names token id {}; the model's ids are 0 to {}", token, vocab_size - 1));
    }
    if (!(static_cast<double>(bias) >= -kLargest && static_cast<double>(bias) <= kLargest)) {
      return refuse("logit_bias",
                    fmt::format("logit_bias of token id {} is {}; accepted: a finite number", token, bias));
    }
  }
  return {};
}

Status check_lengths(const TokenRequest& request, const model::ExecutorLimits& limits) {
  const auto prompt = static_cast<std::int64_t>(request.prompt.size());
  if (prompt == 0) return refuse("prompt", "the prompt has no tokens; at least 1 is needed");
  if (request.max_tokens < 1) {
    return refuse("max_tokens", fmt::format("max_tokens is {}; accepted: 1 or more", request.max_tokens));
  }
  if (request.min_tokens < 0 || request.min_tokens > request.max_tokens) {
    return refuse("min_tokens", fmt::format("min_tokens is {}; accepted: 0 to max_tokens, which is {}",
                                            request.min_tokens, request.max_tokens));
  }
  if (prompt + request.max_tokens > limits.max_sequence_tokens) {
    const bool prompt_alone = prompt >= limits.max_sequence_tokens;
    return refuse(
        prompt_alone ? "prompt" : "max_tokens",
        fmt::format("the prompt has {} tokens and max_tokens is {}, together {}; a sequence may have {} at most",
                    prompt, request.max_tokens, prompt + request.max_tokens, limits.max_sequence_tokens));
  }
  const std::int64_t blocks = worst_case_blocks(request, limits);
  if (blocks > limits.kv_blocks) {
    return refuse(
        "max_tokens",
        fmt::format("the prompt has {} tokens and max_tokens is {}: that can need {} KV blocks of {} tokens, and the "
                    "whole pool has {}",
                    prompt, request.max_tokens, blocks, limits.block_tokens, limits.kv_blocks));
  }
  return {};
}

}  // namespace

std::int64_t worst_case_blocks(const TokenRequest& request, const model::ExecutorLimits& limits) {
  const std::int64_t tokens = static_cast<std::int64_t>(request.prompt.size()) + request.max_tokens - 1;
  return (tokens + limits.block_tokens - 1) / limits.block_tokens;
}

Status check_request(const TokenRequest& request, const model::ExecutorLimits& limits) {
  if (Status status = check_lengths(request, limits); !status.ok()) return status;
  if (Status status = check_ids("prompt", request.prompt, limits.vocab_size); !status.ok()) return status;
  if (Status status = check_ids("stop_token_ids", request.stop_token_ids, limits.vocab_size); !status.ok())
    return status;
  if (request.top_logprobs < -1 || request.top_logprobs > limits.vocab_size) {
    return refuse("top_logprobs",
                  fmt::format("top_logprobs is {}; accepted: -1 (no logprobs) to the vocabulary's size, {}",
                              request.top_logprobs, limits.vocab_size));
  }
  return check_sampling(request.sampling, limits.vocab_size);
}

}  // namespace sterling::engine
