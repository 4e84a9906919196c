// POST /v1/chat/completions and /v1/completions: one generation from its request to its last byte.
//
// The client's leaving is seen in two ways: a broken connection at once; a closed sending half (FIN) only says that the client
// sends no more, and programs may rightly do that and wait for the answer. From then on little something is written now and then
// (an SSE comment; blanks before the JSON of a whole answer): a client that is gone answers with a reset, and the next write fails.
#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "server/background.h"
#include "server/connection.h"
#include "server/generation_job.h"
#include "server/routes.h"

namespace sterling::server {
namespace {

namespace asio = boost::asio;
namespace openai = protocol::openai;
using Clock = std::chrono::steady_clock;
using serving::RequestError;
using serving::Update;

constexpr std::chrono::milliseconds kFirstProbe{100};
constexpr std::chrono::milliseconds kLaterProbes{1'000};

Response refusal(const RequestError& error) {
  Response response;
  response.status = openai::http_status(error);
  response.body = openai::render_error(error);
  if (response.status == 429 || response.status == 503) response.headers = {{"Retry-After", "1"}};
  return response;
}

// Counts a generation as work under way as long as it lives.
class WorkScope {
 public:
  explicit WorkScope(Lifecycle& lifecycle) : lifecycle_(lifecycle), accepted_(lifecycle.begin_work()) {}
  ~WorkScope() {
    if (accepted_) lifecycle_.end_work();
  }
  WorkScope(const WorkScope&) = delete;
  WorkScope& operator=(const WorkScope&) = delete;
  bool accepted() const { return accepted_; }

 private:
  Lifecycle& lifecycle_;
  bool accepted_;
};

class GenerationRun {
 public:
  GenerationRun(Connection& connection, Context& context, const Request& request, GenerationJob& job,
                Clock::time_point arrival)
      : connection_(connection),
        context_(context),
        request_(request),
        job_(job),
        arrival_(arrival),
        wakeup_(std::make_shared<Wakeup>(connection.executor())) {
    const auto limit = context.options.request_timeout;
    deadline_ = limit.count() > 0 ? arrival + limit : Clock::time_point::max();
  }
  ~GenerationRun() {
    connection_.unwatch_client();
    wakeup_->detach();
    if (generation_) generation_->cancel();
    context_.metrics.count_request(outcome_, usage_, Clock::now() - arrival_);
  }
  GenerationRun(const GenerationRun&) = delete;
  GenerationRun& operator=(const GenerationRun&) = delete;

  asio::awaitable<Response> run();

 private:
  Update next_update();
  void observe(const Update& update);
  std::string bytes_for(Update& update, bool over);
  std::string probe();
  Clock::time_point next_look() const;
  void begin_response(std::string& out);
  void append(std::string& out, std::string_view body) const;
  Response written() const;

  Connection& connection_;
  Context& context_;
  const Request& request_;
  GenerationJob& job_;
  const Clock::time_point arrival_;
  Clock::time_point deadline_;
  std::shared_ptr<Wakeup> wakeup_;
  std::shared_ptr<serving::Generation> generation_;
  serving::CollectedAnswer collected_;
  serving::Usage usage_;
  std::string_view outcome_ = "cancelled";
  bool started_ = false;
  bool head_sent_ = false;
  bool probing_ = false;
  Clock::time_point next_probe_ = Clock::time_point::max();
  bool saw_token_ = false;
  std::map<std::int32_t, Clock::time_point> last_token_;  // by choice
};

asio::awaitable<Response> GenerationRun::run() {
  generation_ = job_.start([wakeup = wakeup_] { wakeup->notify(); });
  wakeup_->on_notice([generation = generation_.get()] {
    if (generation->overrun()) generation->cancel();
  });
  connection_.watch_client(wakeup_);
  for (;;) {
    Update update = next_update();
    observe(update);
    const bool over = update.error || update.finished;
    if (over) outcome_ = update.finished ? "completed" : (head_sent_ ? "failed" : "refused");
    if (update.error && !head_sent_) co_return refusal(*update.error);
    if (update.finished && !job_.stream && !head_sent_) {
      collected_.add(std::move(update));
      Response response;
      response.body = job_.show_whole(collected_);
      response.headers.emplace_back("x-request-id", job_.id);
      co_return response;
    }
    std::string out = bytes_for(update, over);
    if (!over) out += probe();
    if (!out.empty() && !co_await connection_.write(out)) {
      if (over) outcome_ = "cancelled";
      co_return written();
    }
    if (over) co_return written();
    if (connection_.client_gone()) co_return written();
    if (out.empty()) co_await wakeup_->wait_until(next_look());
  }
}

// What the service has, or the server's own reasons to end.
Update GenerationRun::next_update() {
  Update update = generation_->take();
  if (update.error || update.finished) return update;
  if (context_.stopping) {
    ++context_.cut_off;
    update.error =
        RequestError{ErrorCode::kUnavailable, "the server is stopping; the answer was cut off", {}, "server_stopping"};
  } else if (Clock::now() >= deadline_) {
    update.error = RequestError{
        ErrorCode::kDeadlineExceeded, "the request took longer than this server allows", {}, "request_timeout"};
  }
  return update;
}

void GenerationRun::observe(const Update& update) {
  started_ = started_ || update.started;
  if (started_) usage_ = update.usage.prompt_tokens > 0 ? update.usage : usage_;
  for (const serving::ChoiceDelta& delta : update.deltas) {
    if (delta.finish != serving::FinishReason::kNone) context_.metrics.count_finish(delta.finish);
    if (delta.generated_tokens == 0) continue;
    if (!saw_token_) context_.metrics.observe_first_token(delta.time - arrival_);
    saw_token_ = true;
    const auto [last, first] = last_token_.emplace(delta.index, delta.time);
    if (!first) context_.metrics.observe_token_gap(delta.time - std::exchange(last->second, delta.time));
  }
}

std::string GenerationRun::bytes_for(Update& update, bool over) {
  std::string out;
  if (job_.stream) {
    if (update.started) begin_response(out);
    append(out, job_.stream->render(update));
  } else {
    // Only a probe began this answer before it was whole.
    if (update.error) append(out, openai::render_error(*update.error));
    const bool finished = update.finished;
    collected_.add(std::move(update));
    if (finished) append(out, job_.show_whole(collected_));
  }
  if (over && !request_.http_1_0) out += kLastChunk;
  return out;
}

// A sign of life where one is due.
std::string GenerationRun::probe() {
  std::string out;
  if (!started_) return out;
  const Clock::time_point now = Clock::now();
  if (connection_.client_finished_sending()) {
    if (probing_ && now < next_probe_) return out;
    next_probe_ = now + (probing_ ? kLaterProbes : kFirstProbe);
    probing_ = true;
  } else {
    if (!job_.stream) return out;
    if (next_probe_ != Clock::time_point::max() && now < next_probe_) return out;
    const bool first = next_probe_ == Clock::time_point::max();
    next_probe_ = now + context_.options.ping_interval;
    if (first) return out;
  }
  begin_response(out);
  append(out, job_.stream ? ": still here\n\n" : " ");
  return out;
}

Clock::time_point GenerationRun::next_look() const {
  return std::min({deadline_, next_probe_, Clock::now() + std::chrono::hours(1)});
}

void GenerationRun::begin_response(std::string& out) {
  if (head_sent_) return;
  head_sent_ = true;
  std::vector<std::pair<std::string, std::string>> headers = {{"x-request-id", job_.id}};
  const std::string& manifest = context_.options.facts.hash;
  if (!manifest.empty()) headers.emplace_back("X-Sterling-Manifest", manifest);
  if (job_.stream) {
    headers.emplace_back("Cache-Control", "no-cache");
    headers.emplace_back("X-Accel-Buffering", "no");
  }
  ResponseHeadInfo info;
  info.content_type = job_.stream ? "text/event-stream; charset=utf-8" : "application/json";
  info.http_1_0 = request_.http_1_0;
  info.close = request_.http_1_0 || !request_.keep_alive || context_.lifecycle.draining();
  out += response_head(info, headers);
}

void GenerationRun::append(std::string& out, std::string_view body) const {
  if (request_.http_1_0) {
    out += body;
  } else {
    append_chunk(out, body);
  }
}

Response GenerationRun::written() const {
  Response response;
  response.sent = true;
  response.close = request_.http_1_0 || outcome_ != "completed";
  return response;
}

Response draining() {
  Response response =
      refusal({ErrorCode::kUnavailable, "the server is draining and takes no new requests", {}, "draining"});
  response.close = true;
  return response;
}

using JobMaker = serving::Outcome<GenerationJob> (*)(Context&, std::string_view);

asio::awaitable<Response> generate(Connection& connection, Context& context, const Request& request,
                                   JobMaker make_job) {
  const Clock::time_point arrival = Clock::now();
  const WorkScope work(context.lifecycle);
  if (!work.accepted()) {
    context.metrics.count_request("refused", serving::Usage(), Clock::duration(0));
    co_return draining();
  }
  std::optional<serving::Outcome<GenerationJob>> job;
  std::function<void()> parse = [&] { job.emplace(make_job(context, request.body)); };
  co_await in_background(connection, context, std::move(parse));
  if (!job->ok()) {
    context.metrics.count_request("refused", serving::Usage(), Clock::now() - arrival);
    co_return refusal(job->error());
  }
  GenerationRun run(connection, context, request, job->value(), arrival);
  co_return co_await run.run();
}

}  // namespace

asio::awaitable<Response> handle_chat(Connection& connection, Context& context, const Request& request) {
  return generate(connection, context, request, make_chat_job);
}

asio::awaitable<Response> handle_completion(Connection& connection, Context& context, const Request& request) {
  return generate(connection, context, request, make_completion_job);
}

}  // namespace sterling::server
