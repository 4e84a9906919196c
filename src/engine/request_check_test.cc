#include "engine/request_check.h"

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace sterling::engine {
namespace {

model::ExecutorLimits limits() {
  model::ExecutorLimits limits;
  limits.vocab_size = 100;
  limits.max_sequence_tokens = 50;
  limits.block_tokens = 4;
  limits.kv_blocks = 10;
  return limits;
}

TokenRequest good() {
  TokenRequest request;
  request.prompt = {0, 99, 5};
  request.max_tokens = 10;
  return request;
}

TEST(RequestCheck, AcceptsTheEdges) {
  EXPECT_TRUE(check_request(good(), limits()).ok());
  TokenRequest request = good();
  request.max_tokens = 38;  // 3 + 38 - 1 = 40 tokens: all ten blocks
  request.min_tokens = 38;
  request.top_logprobs = 100;
  request.stop_token_ids = {0, 99};
  request.sampling.temperature = 0.0F;
  request.sampling.top_p = std::numeric_limits<float>::min();
  request.sampling.min_p = 1.0F;
  request.sampling.frequency_penalty = -2.0F;
  request.sampling.presence_penalty = 2.0F;
  request.sampling.logit_bias = {{99, -100.0F}};
  EXPECT_TRUE(check_request(request, limits()).ok());
  EXPECT_EQ(worst_case_blocks(request, limits()), 10);
}

struct BadRequest {
  std::string field;
  std::function<void(TokenRequest&)> spoil;
  std::vector<std::string> mentions;
};

TEST(RequestCheck, RefusesAndNamesTheField) {
  static constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  static constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<BadRequest> cases = {
      {"prompt", [](TokenRequest& r) { r.prompt.clear(); }, {"no tokens"}},
      {"prompt", [](TokenRequest& r) { r.prompt[1] = 100; }, {"prompt[1]", "100", "99"}},
      {"prompt", [](TokenRequest& r) { r.prompt[2] = -1; }, {"prompt[2]", "-1"}},
      {"prompt", [](TokenRequest& r) { r.prompt.assign(60, 1); }, {"60", "50"}},
      {"max_tokens", [](TokenRequest& r) { r.max_tokens = 0; }, {"0", "1 or more"}},
      {"max_tokens", [](TokenRequest& r) { r.max_tokens = -5; }, {"-5"}},
      {"max_tokens", [](TokenRequest& r) { r.max_tokens = 48; }, {"3 tokens", "48", "51", "50"}},
      {"max_tokens",
       [](TokenRequest& r) { r.max_tokens = std::numeric_limits<std::int32_t>::max(); },
       {"2147483650", "50"}},
      {"max_tokens", [](TokenRequest& r) { r.max_tokens = 39; }, {"11 KV blocks", "10"}},
      {"min_tokens", [](TokenRequest& r) { r.min_tokens = 11; }, {"11", "10"}},
      {"min_tokens", [](TokenRequest& r) { r.min_tokens = -1; }, {"-1"}},
      {"stop_token_ids",
       [](TokenRequest& r) {
         r.stop_token_ids = {1, 100};
       },
       {"stop_token_ids[1]", "100"}},
      {"top_logprobs", [](TokenRequest& r) { r.top_logprobs = -2; }, {"-2"}},
      {"top_logprobs", [](TokenRequest& r) { r.top_logprobs = 101; }, {"101", "100"}},
      {"temperature", [](TokenRequest& r) { r.sampling.temperature = -0.1F; }, {"-0.1"}},
      {"temperature", [](TokenRequest& r) { r.sampling.temperature = kNan; }, {"nan"}},
      {"temperature", [](TokenRequest& r) { r.sampling.temperature = kInfinity; }, {"inf"}},
      {"top_k", [](TokenRequest& r) { r.sampling.top_k = -1; }, {"-1"}},
      {"top_p", [](TokenRequest& r) { r.sampling.top_p = 0.0F; }, {"0"}},
      {"top_p", [](TokenRequest& r) { r.sampling.top_p = 1.5F; }, {"1.5"}},
      {"top_p", [](TokenRequest& r) { r.sampling.top_p = kNan; }, {"nan"}},
      {"min_p", [](TokenRequest& r) { r.sampling.min_p = -0.5F; }, {"-0.5"}},
      {"min_p", [](TokenRequest& r) { r.sampling.min_p = 1.5F; }, {"1.5"}},
      {"repetition_penalty", [](TokenRequest& r) { r.sampling.repetition_penalty = 0.0F; }, {"0"}},
      {"repetition_penalty", [](TokenRequest& r) { r.sampling.repetition_penalty = kInfinity; }, {"inf"}},
      {"frequency_penalty", [](TokenRequest& r) { r.sampling.frequency_penalty = 2.5F; }, {"2.5"}},
      {"presence_penalty", [](TokenRequest& r) { r.sampling.presence_penalty = -2.5F; }, {"-2.5"}},
      {"logit_bias",
       [](TokenRequest& r) {
         r.sampling.logit_bias = {{100, 1.0F}};
       },
       {"100", "99"}},
      {"logit_bias",
       [](TokenRequest& r) {
         r.sampling.logit_bias = {{5, -kInfinity}};
       },
       {"5", "-inf"}},
      {"logit_bias",
       [](TokenRequest& r) {
         r.sampling.logit_bias = {{5, kNan}};
       },
       {"nan"}},
  };
  for (const BadRequest& bad : cases) {
    TokenRequest request = good();
    bad.spoil(request);
    const Status status = check_request(request, limits());
    ASSERT_FALSE(status.ok()) << bad.field;
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(status.error().where, bad.field) << status.error().message;
    for (const std::string& text : bad.mentions) {
      EXPECT_NE(status.error().message.find(text), std::string::npos) << status.error().message << " lacks " << text;
    }
  }
}

}  // namespace
}  // namespace sterling::engine
