#include "cli/serving_host.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cli/console.h"
#include "cli/hub_access.h"
#include "cli/memory_ledger.h"
#include "cli/runtime.h"
#include "cli/serving_defaults.h"
#include "cli/serving_network.h"
#include "cli/serving_precision.h"
#include "cli/serving_proof.h"
#include "cli/serving_report.h"
#include "cli/version.h"
#include "engine/engine.h"
#include "server/server.h"
#include "serving/service.h"

namespace sterling::cli {
namespace {

// Members are destroyed in reverse order: sockets before service before engine before model.
class Host final : public ServingHost {
 public:
  const std::string& address() const override { return server->address(); }
  const std::string& model_name() const override { return service->model_names().front(); }
  std::size_t stop(std::chrono::milliseconds drain) override { return server->stop(drain); }

  Runtime runtime;
  std::unique_ptr<engine::Engine> engine;
  std::unique_ptr<serving::Service> service;
  std::unique_ptr<server::Server> server;
};

std::chrono::milliseconds to_ms(double seconds) {
  return std::chrono::milliseconds(std::llround(seconds * 1000.0));
}

}  // namespace

Status find_model(config::ServeOptions& options, const Invocation& invocation) {
  auto resolved = resolve_model(options.model, invocation);
  if (!resolved) return resolved.error();
  if (resolved->repo && !options.served_model_name) options.served_model_name = resolved->repo->text();
  options.model = resolved->path.string();
  return {};
}

Expected<std::unique_ptr<ServingHost>> start_serving(const config::ServeOptions& options, std::string settings_json,
                                                     LogSink log) {
  if (Status status = check_port(options.host, options.port); !status) return status.error();
  auto keys = read_keys(options);
  if (!keys) return keys.error();
  auto host = std::make_unique<Host>();

  auto opened = open_serving(options);
  if (!opened) return opened.error();
  host->runtime = std::move(opened->runtime);
  const ServingPrecision& precision = opened->precision;
  log_precision(precision, log);
  if (Status status = load_weights(host->runtime); !status) return status.error();

  auto pools = plan_pools(host->runtime,
                          {options.max_model_len, options.kv_cache_memory, options.max_num_seqs,
                           options.max_num_batched_tokens, precision.precision.kv, precision.precision.kv_scales});
  if (!pools) return pools.error();
  if (Status status = host->runtime.model->configure(*pools); !status) return status.error();
  log_model(host->runtime, *pools, precision.inspection, log);
  if (Status status = check_ledger(read_ledger(host->runtime, *pools), log); !status) return status.error();
  if (Status status = prove_start(host->runtime, precision.precision, log); !status) return status.error();

  auto service = make_service_options(options, host->runtime, log);
  if (!service) return service.error();
  service->model_names = {served_name(options)};

  engine::EngineOptions engine;
  engine.max_running = pools->max_batch_slices;
  engine.max_batch_tokens = pools->max_batch_tokens;
  engine.max_queue = static_cast<std::int32_t>(options.max_queue);
  host->engine = engine::make_engine(*host->runtime.model, engine);
  host->service = std::make_unique<serving::Service>(*host->engine, std::move(*service));

  server::ServerOptions server;
  server.address = options.host;
  server.port = options.port;
  server.api_keys = std::move(*keys);
  server.version = kVersion;
  server.max_body_bytes = options.max_body_size;
  server.max_connections = options.max_connections;
  server.header_timeout = to_ms(options.header_timeout);
  if (options.request_timeout) server.request_timeout = to_ms(*options.request_timeout);
  server.server_info = [json = std::move(settings_json)] { return json; };
  server.precision = [json = boost::json::serialize(precision.manifest)] { return json; };
  server.prove = [&runtime = host->runtime, &engine = *host->engine, declared = precision.precision, log] {
    return prove_live(runtime, engine, declared, log);
  };
  server.facts = precision_facts(precision, host->runtime);
  server.system_fingerprint = precision.hash();
  server.log = log;
  auto started = server::Server::start(*host->service, std::move(server));
  if (!started) return started.error();
  host->server = std::move(*started);
  host->server->set_ready(true);
  log(LogLevel::kInfo,
      fmt::format("ready address=http://{} model={} kv_cache_dtype={} kv_scales={} kv_tokens={} max_sequences={} "
                  "manifest={}",
                  host->address(), host->model_name(), plan::kv_format_name(host->runtime.backend->kv_format()),
                  plan::kv_scale_state_name(precision.precision.kv_scale_state),
                  std::int64_t{pools->kv_blocks} * plan::kBlockTokens, pools->max_batch_slices, precision.hash()));
  return std::unique_ptr<ServingHost>(std::move(host));
}

}  // namespace sterling::cli
