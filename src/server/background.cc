#include "server/background.h"

#include <chrono>
#include <memory>
#include <mutex>
#include <utility>

namespace sterling::server {
namespace {

struct Job {
  std::mutex mutex;
  bool wanted = true;  // guarded by mutex, which is held while the work runs
  bool done = false;   // guarded by mutex
};

class JobScope {
 public:
  explicit JobScope(std::shared_ptr<Job> job) : job_(std::move(job)) {}
  ~JobScope() {
    const std::lock_guard lock(job_->mutex);
    job_->wanted = false;
  }
  JobScope(const JobScope&) = delete;
  JobScope& operator=(const JobScope&) = delete;

  // Called after a notice only: the worker has let go of the mutex by then, or is about to.
  bool done() const {
    const std::lock_guard lock(job_->mutex);
    return job_->done;
  }

 private:
  std::shared_ptr<Job> job_;
};

}  // namespace

boost::asio::awaitable<void> in_background(Connection& connection, Context& context, std::function<void()> work) {
  const auto wakeup = std::make_shared<Wakeup>(connection.executor());
  const WakeupScope wakeup_scope(wakeup);
  const auto job = std::make_shared<Job>();
  const JobScope scope(job);
  context.service.run_in_background([work = std::move(work), job, wakeup] {
    {
      const std::lock_guard lock(job->mutex);
      if (!job->wanted) return;
      work();
      job->done = true;
    }
    wakeup->notify();
  });
  do {
    co_await wakeup->wait_until(std::chrono::steady_clock::now() + std::chrono::hours(1));
  } while (!scope.done());
}

}  // namespace sterling::server
