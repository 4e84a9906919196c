// POST /v1/precision/prove.
#include <functional>
#include <tuple>

#include <fmt/format.h>

#include "server/background.h"
#include "server/routes.h"

namespace sterling::server {

boost::asio::awaitable<Response> handle_prove(Connection& connection, Context& context, const Request& request) {
  if (!context.options.prove) {
    co_return error_response(404, "invalid_request_error",
                             fmt::format("{} has nothing to show in this server", request.path), "not_found");
  }
  Response response;
  std::function<void()> job = [&] { std::tie(response.status, response.body) = context.options.prove(); };
  co_await in_background(connection, context, std::move(job));
  co_return response;
}

}  // namespace sterling::server
