#include "server/metrics.h"

#include <sstream>
#include <utility>

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

namespace sterling::server {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = prometheus::Labels;

// Seconds. CPU servers prefill for minutes and decode in milliseconds.
const prometheus::Histogram::BucketBoundaries kFirstToken = {0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,  2.5,
                                                             5,    10,    30,   60,  120,  300, 900};
const prometheus::Histogram::BucketBoundaries kTokenGap = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1,
                                                           0.15,  0.2,    0.3,   0.4,  0.5,   0.75, 1,     2.5};
const prometheus::Histogram::BucketBoundaries kWhole = {0.1, 0.25, 0.5, 1,   2.5, 5,    10,  20,
                                                        30,  60,   120, 300, 600, 1800, 3600};

double seconds(std::chrono::steady_clock::duration d) {
  return std::chrono::duration<double>(d).count();
}

MetricFamily family(std::string name, std::string help, MetricType type, double value, const std::string& model) {
  prometheus::ClientMetric metric;
  metric.label = {{"model_name", model}};
  (type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
  return MetricFamily{std::move(name), std::move(help), type, {std::move(metric)}};
}

// The engine counts by itself; a scrape copies its figures.
std::vector<MetricFamily> engine_families(const engine::EngineStats& s, const std::string& model) {
  const auto counter = [&](const char* name, const char* help, std::uint64_t value) {
    return family(name, help, MetricType::Counter, static_cast<double>(value), model);
  };
  const auto gauge = [&](const char* name, const char* help, double value) {
    return family(name, help, MetricType::Gauge, value, model);
  };
  const double kv_total = s.kv_blocks_total;
  return {
      gauge("sterling:num_requests_running", "Sequences that the engine computes now.", s.running),
      gauge("sterling:num_requests_waiting", "Sequences that wait for their turn.", s.waiting),
      gauge("sterling:kv_blocks_used", "KV cache blocks in use.", s.kv_blocks_used),
      gauge("sterling:kv_blocks_total", "KV cache blocks of the pool.", kv_total),
      gauge("sterling:kv_cache_usage_perc", "Used share of the KV pool, 0 to 1.",
            kv_total > 0 ? s.kv_blocks_used / kv_total : 0.0),
      gauge("sterling:state_slots_used", "Recurrent-state slots in use.", s.state_slots_used),
      gauge("sterling:state_slots_total", "Recurrent-state slots of the pool.", s.state_slots_total),
      counter("sterling:engine_steps_total", "Steps of the engine.", s.steps),
      counter("sterling:num_preemptions_total", "Sequences put back to be computed again.", s.preemptions),
      counter("sterling:prompt_tokens_total", "Prompt tokens accepted.", s.prompt_tokens),
      counter("sterling:generation_tokens_total", "Tokens generated.", s.generated_tokens),
      counter("sterling:sequences_submitted_total", "Sequences given to the engine (a request has n per prompt).",
              s.requests_submitted),
      counter("sterling:sequences_finished_total", "Sequences that came to their end.", s.requests_finished),
      counter("sterling:sequences_cancelled_total", "Sequences cancelled: stop strings, clients that left.",
              s.requests_cancelled),
      counter("sterling:sequences_failed_total", "Sequences that the engine failed.", s.requests_failed),
  };
}

// One series per layer, K or V, and fate.
MetricFamily element_family(const std::vector<KvElements>& elements, const std::string& model) {
  MetricFamily result{
      "sterling:kv_cache_elements_total",
      "Elements of K and V written to the cache, and those that clipped, became zero or were not finite.",
      MetricType::Counter,
      {}};
  for (const KvElements& row : elements) {
    const std::pair<const char*, std::int64_t> counts[] = {{"written", row.written},
                                                           {"clipped", row.clipped},
                                                           {"underflowed", row.underflowed},
                                                           {"non_finite", row.non_finite}};
    for (const auto& [fate, count] : counts) {
      prometheus::ClientMetric metric;
      metric.label = {{"model_name", model},
                      {"layer", std::to_string(row.layer)},
                      {"tensor", row.value ? "v" : "k"},
                      {"fate", fate}};
      metric.counter.value = static_cast<double>(count);
      result.metric.push_back(std::move(metric));
    }
  }
  return result;
}

}  // namespace

struct Metrics::Impl {
  Impl(const serving::Service& s, const std::string& version, const PrecisionFacts& facts)
      : service(s), model(s.model_names().front()), elements(facts.elements) {
    if (!facts.hash.empty()) {
      prometheus::BuildGauge()
          .Name("sterling:precision_info")
          .Help("Constant 1; the labels say what is computed and stored in which type. /v1/precision has it whole.")
          .Register(registry)
          .Add({{"manifest", facts.hash},
                {"kv_cache_dtype", facts.kv_cache_dtype},
                {"kv_scales", facts.kv_scales},
                {"compute", facts.compute},
                {"isa", facts.isa},
                {"model_name", model}})
          .Set(1);
      prometheus::BuildGauge()
          .Name("sterling:kv_unscaled_accepted")
          .Help(
              "1 while an FP8 KV cache runs with scales of 1.0 that nobody measured, as accepted by "
              "--accept-unscaled-kv.")
          .Register(registry)
          .Add(labels())
          .Set(facts.unscaled_kv ? 1 : 0);
    }
    prometheus::BuildGauge()
        .Name("sterling:build_info")
        .Help("Constant 1; the labels say what runs.")
        .Register(registry)
        .Add({{"version", version}, {"model_name", model}})
        .Set(1);
  }
  Labels labels(Labels more = {}) const {
    more["model_name"] = model;
    return more;
  }
  prometheus::Histogram& histogram(const char* name, const char* help,
                                   const prometheus::Histogram::BucketBoundaries& bounds) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(labels(), bounds);
  }
  prometheus::Family<prometheus::Counter>& counters(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
  }

  const serving::Service& service;
  const std::string model;
  const std::function<std::vector<KvElements>()> elements;
  prometheus::Registry registry;
  prometheus::Family<prometheus::Counter>& responses =
      counters("sterling:http_responses_total", "HTTP responses by route and status.");
  prometheus::Family<prometheus::Counter>& requests =
      counters("sterling:requests_total",
               "Generation requests by outcome: completed, failed, cancelled (the client left), refused.");
  prometheus::Family<prometheus::Counter>& finishes =
      counters("sterling:request_success_total", "Choices by finish reason.");
  prometheus::Counter& answer_tokens =
      counters("sterling:request_generation_tokens_total", "Tokens of answers that were delivered.").Add(labels());
  prometheus::Counter& cached_tokens =
      counters("sterling:cached_prompt_tokens_total", "Prompt tokens that were not computed again.").Add(labels());
  prometheus::Histogram& first_token =
      histogram("sterling:time_to_first_token_seconds", "From a request's arrival to its first token.", kFirstToken);
  prometheus::Histogram& token_gap =
      histogram("sterling:inter_token_latency_seconds", "Between two tokens of one choice, at the engine.", kTokenGap);
  prometheus::Histogram& whole =
      histogram("sterling:e2e_request_latency_seconds", "From a request's arrival to its last token.", kWhole);
  prometheus::Gauge& connections = prometheus::BuildGauge()
                                       .Name("sterling:http_connections")
                                       .Help("Open connections.")
                                       .Register(registry)
                                       .Add(labels());
};

Metrics::Metrics(const serving::Service& service, const std::string& version, const PrecisionFacts& facts)
    : impl_(std::make_unique<Impl>(service, version, facts)) {}
Metrics::~Metrics() = default;

void Metrics::count_response(std::string_view route, int status) {
  impl_->responses.Add(impl_->labels({{"route", std::string(route)}, {"status", std::to_string(status)}})).Increment();
}

void Metrics::count_request(std::string_view outcome, const serving::Usage& usage,
                            std::chrono::steady_clock::duration whole) {
  impl_->requests.Add(impl_->labels({{"status", std::string(outcome)}})).Increment();
  impl_->answer_tokens.Increment(static_cast<double>(usage.completion_tokens));
  impl_->cached_tokens.Increment(static_cast<double>(usage.cached_tokens));
  if (outcome == "completed") impl_->whole.Observe(seconds(whole));
}

void Metrics::count_finish(serving::FinishReason reason) {
  impl_->finishes
      .Add(impl_->labels({{"finished_reason", reason == serving::FinishReason::kLength ? "length" : "stop"}}))
      .Increment();
}

void Metrics::observe_first_token(std::chrono::steady_clock::duration after) {
  impl_->first_token.Observe(seconds(after));
}
void Metrics::observe_token_gap(std::chrono::steady_clock::duration gap) {
  impl_->token_gap.Observe(seconds(gap));
}
void Metrics::set_connections(std::size_t open) {
  impl_->connections.Set(static_cast<double>(open));
}

std::string Metrics::text() const {
  std::vector<MetricFamily> families = impl_->registry.Collect();
  for (MetricFamily& f : engine_families(impl_->service.engine_stats(), impl_->model)) families.push_back(std::move(f));
  if (impl_->elements) families.push_back(element_family(impl_->elements(), impl_->model));
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, families);
  return out.str();
}

}  // namespace sterling::server
