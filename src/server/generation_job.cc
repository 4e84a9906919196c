#include "server/generation_job.h"

#include <ctime>
#include <utility>

#include "protocol/openai/requests.h"

namespace sterling::server {
namespace {

namespace openai = protocol::openai;

openai::ResponseHead new_head(Context& context, std::string_view prefix, const std::string& model) {
  openai::ResponseHead head;
  head.id = context.new_id(prefix);
  head.created = std::time(nullptr);
  head.model = model.empty() ? context.service.model_names().front() : model;
  head.system_fingerprint = context.options.system_fingerprint;
  return head;
}

}  // namespace

serving::Outcome<GenerationJob> make_chat_job(Context& context, std::string_view body) {
  auto request = openai::parse_chat_request(body, {context.service.template_reads_parts()});
  if (!request) return request.error();
  const openai::ResponseHead head = new_head(context, "chatcmpl-", request->model);
  const openai::ResponseShape shape = openai::ResponseShape::of(*request);
  GenerationJob job;
  job.id = head.id;
  if (request->stream.stream) {
    job.stream = std::make_unique<openai::ChatStreamRenderer>(head, shape);
  } else {
    job.show_whole = [head, shape](const serving::CollectedAnswer& answer) {
      return openai::render_chat(head, shape, answer);
    };
  }
  job.start = [&service = context.service, r = std::move(*request)](serving::Wake wake) mutable {
    return service.chat(std::move(r), std::move(wake));
  };
  return job;
}

serving::Outcome<GenerationJob> make_completion_job(Context& context, std::string_view body) {
  auto request = openai::parse_completion_request(body);
  if (!request) return request.error();
  const openai::ResponseHead head = new_head(context, "cmpl-", request->model);
  const openai::ResponseShape shape = openai::ResponseShape::of(*request);
  GenerationJob job;
  job.id = head.id;
  if (request->stream.stream) {
    job.stream = std::make_unique<openai::CompletionStreamRenderer>(head, shape);
  } else {
    job.show_whole = [head, shape](const serving::CollectedAnswer& answer) {
      return openai::render_completion(head, shape, answer);
    };
  }
  job.start = [&service = context.service, r = std::move(*request)](serving::Wake wake) mutable {
    return service.complete(std::move(r), std::move(wake));
  };
  return job;
}

}  // namespace sterling::server
