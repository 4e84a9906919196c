// The whole answer from its updates: what a response that does not stream carries is the concatenation of what a stream sends.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "serving/types.h"

namespace sterling::serving {

struct CollectedChoice {
  std::string text;
  std::vector<std::int32_t> token_ids;
  std::vector<TokenLogprobs> logprobs;
  FinishReason finish = FinishReason::kNone;
  std::variant<std::monostate, std::int32_t, std::string> stop_reason;
};

struct CollectedAnswer {
  std::vector<CollectedChoice> choices;  // by index
  std::vector<std::vector<std::int32_t>> prompt_token_ids;
  Usage usage;

  void add(Update&& update);
};

}  // namespace sterling::serving
