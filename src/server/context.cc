#include "server/context.h"

#include <ctime>
#include <random>
#include <utility>

#include <fmt/format.h>

namespace sterling::server {
namespace {

std::uint64_t random_salt() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32U) | device();
}

}  // namespace

Context::Context(serving::Service& s, ServerOptions o)
    : service(s),
      options(std::move(o)),
      started_at(std::time(nullptr)),
      metrics(s, options.version, options.facts),
      id_salt_(random_salt()) {}

std::string Context::new_id(std::string_view prefix) {
  return fmt::format("{}{:016x}{:016x}", prefix, id_salt_, next_id_.fetch_add(1));
}

}  // namespace sterling::server
