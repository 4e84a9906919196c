// Work of a request that must not run on the I/O thread.
#pragma once

#include <functional>

#include <boost/asio/awaitable.hpp>

#include "server/connection.h"
#include "server/context.h"

namespace sterling::server {

// Runs `work` on one of the service's threads and resumes when it is done. `work` may refer to the caller's locals: should the coroutine
// be destroyed before it resumes (the server stops), that waits for work that has begun and drops work that has not.
// Name the closure before the call (g++ 12 destroys temporary closures of a co_await expression twice).
boost::asio::awaitable<void> in_background(Connection& connection, Context& context, std::function<void()> work);

}  // namespace sterling::server
