// A generation request, parsed: how to start it and how to show what comes. The two kinds (chat, completions) differ only here.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "protocol/openai/render.h"
#include "server/context.h"
#include "serving/collector.h"
#include "serving/service.h"

namespace sterling::server {

struct GenerationJob {
  std::string id;
  std::function<std::shared_ptr<serving::Generation>(serving::Wake)> start;
  std::unique_ptr<protocol::openai::StreamRenderer> stream;                // null: the whole answer at once
  std::function<std::string(const serving::CollectedAnswer&)> show_whole;  // then
};

serving::Outcome<GenerationJob> make_chat_job(Context& context, std::string_view body);
serving::Outcome<GenerationJob> make_completion_job(Context& context, std::string_view body);

}  // namespace sterling::server
