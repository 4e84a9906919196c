// The table of what the server answers.
#pragma once

#include <string>
#include <string_view>

#include <boost/asio/awaitable.hpp>

#include "server/context.h"
#include "server/http_message.h"

namespace sterling::server {

class Connection;

using Handler = Response (*)(Context&, const Request&);                                            // at once
using AsyncHandler = boost::asio::awaitable<Response> (*)(Connection&, Context&, const Request&);  // takes its time

struct Route {
  Method method;  // kGet serves HEAD too
  std::string_view path;
  bool is_prefix;   // "/v1/models/" and a name behind it
  bool needs_key;   // where the server has keys
  Handler handler;  // one of the two is null
  AsyncHandler async_handler;
};

// Looks at everything but the body. A route, or null and the refusal (404, 405, 401, 403) or the answer to OPTIONS.
const Route* find_route(const Context& context, const Request& request, Response& refusal);

// From generation_run.cc.
boost::asio::awaitable<Response> handle_chat(Connection& connection, Context& context, const Request& request);
boost::asio::awaitable<Response> handle_completion(Connection& connection, Context& context, const Request& request);
// From prove.cc.
boost::asio::awaitable<Response> handle_prove(Connection& connection, Context& context, const Request& request);
// From tokens.cc.
boost::asio::awaitable<Response> handle_tokenize(Connection& connection, Context& context, const Request& request);
boost::asio::awaitable<Response> handle_detokenize(Connection& connection, Context& context, const Request& request);

}  // namespace sterling::server
