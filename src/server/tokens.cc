// POST /tokenize and /detokenize.
#include <utility>

#include "protocol/openai/render.h"
#include "protocol/openai/requests.h"
#include "server/background.h"
#include "server/routes.h"

namespace sterling::server {
namespace {

namespace openai = protocol::openai;

Response refusal(const serving::RequestError& error) {
  Response response;
  response.status = openai::http_status(error);
  response.body = openai::render_error(error);
  return response;
}

Response tokenize(const serving::Service& service, std::string_view body) {
  const openai::ChatParsing parsing{service.template_reads_parts()};
  const auto parsed = openai::parse_tokenize_request(body, parsing);
  if (!parsed) return refusal(parsed.error());
  const auto tokens = service.tokenize(*parsed);
  if (!tokens) return refusal(tokens.error());
  Response response;
  response.body = openai::render_tokens(*tokens, service.max_sequence_tokens(), parsed->return_token_strings);
  return response;
}

Response detokenize(const serving::Service& service, std::string_view body) {
  const auto parsed = openai::parse_detokenize_request(body);
  if (!parsed) return refusal(parsed.error());
  const auto text = service.detokenize(*parsed);
  if (!text) return refusal(text.error());
  Response response;
  response.body = openai::render_text(*text);
  return response;
}

using Work = Response (*)(const serving::Service&, std::string_view);

boost::asio::awaitable<Response> answer(Connection& connection, Context& context, const Request& request, Work work) {
  Response response;
  std::function<void()> job = [&] { response = work(context.service, request.body); };
  co_await in_background(connection, context, std::move(job));
  co_return response;
}

}  // namespace

boost::asio::awaitable<Response> handle_tokenize(Connection& connection, Context& context, const Request& request) {
  return answer(connection, context, request, tokenize);
}

boost::asio::awaitable<Response> handle_detokenize(Connection& connection, Context& context, const Request& request) {
  return answer(connection, context, request, detokenize);
}

}  // namespace sterling::server
