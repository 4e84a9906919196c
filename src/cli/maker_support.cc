#include "cli/maker_support.h"

#include <utility>

#include "platform/host_limits.h"

namespace sterling::cli {

Expected<std::unique_ptr<platform::ThreadPool>> start_maker_threads(const config::Settings& settings) {
  platform::ThreadPool::Options options;
  options.threads = static_cast<std::size_t>(settings.integer("threads"));
  if (options.threads == 0) {
    auto limits = platform::read_host_limits();
    if (!limits) return limits.error();
    options.threads = limits->compute_threads;
  }
  return platform::ThreadPool::create(std::move(options));
}

}  // namespace sterling::cli
