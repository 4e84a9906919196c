#include "serving/collector.h"

#include <iterator>
#include <utility>

namespace sterling::serving {

void CollectedAnswer::add(Update&& update) {
  if (update.started) prompt_token_ids = std::move(update.prompt_token_ids);
  usage = update.usage;
  for (ChoiceDelta& delta : update.deltas) {
    const auto at = static_cast<std::size_t>(delta.index);
    if (choices.size() <= at) choices.resize(at + 1);
    CollectedChoice& choice = choices[at];
    choice.text += delta.text;
    choice.token_ids.insert(choice.token_ids.end(), delta.token_ids.begin(), delta.token_ids.end());
    choice.logprobs.insert(choice.logprobs.end(), std::make_move_iterator(delta.logprobs.begin()),
                           std::make_move_iterator(delta.logprobs.end()));
    if (delta.finish == FinishReason::kNone) continue;
    choice.finish = delta.finish;
    choice.stop_reason = std::move(delta.stop_reason);
  }
}

}  // namespace sterling::serving
