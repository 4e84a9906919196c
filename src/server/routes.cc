#include "server/routes.h"

#include <array>

#include <fmt/format.h>

#include "protocol/json_writer.h"
#include "protocol/openai/render.h"
#include "server/auth.h"

namespace sterling::server {
namespace {

namespace openai = protocol::openai;

Response json_response(std::string body, int status = 200) {
  Response response;
  response.status = status;
  response.body = std::move(body);
  return response;
}

Response get_health(Context& context, const Request&) {
  const auto stalled = context.lifecycle.engine_stalled(std::chrono::steady_clock::now());
  const bool healthy = stalled < context.options.stall_timeout;
  Response response;
  response.status = healthy ? 200 : 503;
  protocol::JsonWriter json(response.body);
  json.begin_object().field("status", healthy ? "ok" : "stalled");
  if (!healthy)
    json.field("reason", fmt::format("the engine has work and made no step for {} s", stalled.count() / 1000));
  json.end_object();
  return response;
}

Response get_ready(Context& context, const Request&) {
  const Lifecycle::Readiness state = context.lifecycle.readiness();
  Response response;
  response.status = state.ready ? 200 : 503;
  protocol::JsonWriter json(response.body);
  json.begin_object().key("ready").boolean(state.ready);
  json.field("status", state.ready ? "ready" : (state.draining ? "draining" : "starting"));
  json.key("reason");
  if (state.ready || state.reason.empty()) {
    json.null();
  } else {
    json.string(state.reason);
  }
  if (const PrecisionFacts& facts = context.options.facts; !facts.hash.empty()) {
    json.field("manifest", facts.hash)
        .field("kv_cache_dtype", facts.kv_cache_dtype)
        .field("kv_scales", facts.kv_scales);
    json.key("unscaled_kv_accepted").boolean(facts.unscaled_kv);
  }
  json.end_object();
  return response;
}

Response get_version(Context& context, const Request&) {
  std::string body;
  protocol::JsonWriter(body).begin_object().field("version", context.options.version).end_object();
  return json_response(std::move(body));
}

Response get_metrics(Context& context, const Request&) {
  Response response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = context.metrics.text();
  return response;
}

Response get_models(Context& context, const Request&) {
  return json_response(openai::render_models(context.service, context.started_at, ""));
}

Response get_model(Context& context, const Request& request) {
  const std::optional<std::string> name = percent_decode(request.path.substr(std::string_view("/v1/models/").size()));
  if (!name || name->empty() || !context.service.has_model(*name)) {
    return error_response(
        404, "invalid_request_error",
        fmt::format("this model is not served here; accepted: {}", fmt::join(context.service.model_names(), ", ")),
        serving::kModelNotFound, "model");
  }
  return json_response(openai::render_models(context.service, context.started_at, *name));
}

Response document(const std::function<std::string()>& source, std::string_view path) {
  if (source) return json_response(source());
  return error_response(404, "invalid_request_error", fmt::format("{} has nothing to show in this server", path),
                        "not_found");
}

Response get_server_info(Context& context, const Request& request) {
  return document(context.options.server_info, request.path);
}

Response get_precision(Context& context, const Request& request) {
  return document(context.options.precision, request.path);
}

// Probes and scrapes carry no key; they show no text of any request.
constexpr std::array kRoutes = {
    Route{Method::kGet, "/health", false, false, get_health, nullptr},
    Route{Method::kGet, "/ready", false, false, get_ready, nullptr},
    Route{Method::kGet, "/metrics", false, false, get_metrics, nullptr},
    Route{Method::kGet, "/version", false, false, get_version, nullptr},
    Route{Method::kGet, "/server_info", false, true, get_server_info, nullptr},
    Route{Method::kGet, "/v1/precision", false, true, get_precision, nullptr},
    Route{Method::kPost, "/v1/precision/prove", false, true, nullptr, handle_prove},
    Route{Method::kGet, "/v1/models", false, true, get_models, nullptr},
    Route{Method::kGet, "/v1/models/", true, true, get_model, nullptr},
    Route{Method::kPost, "/v1/chat/completions", false, true, nullptr, handle_chat},
    Route{Method::kPost, "/v1/completions", false, true, nullptr, handle_completion},
    Route{Method::kPost, "/tokenize", false, true, nullptr, handle_tokenize},
    Route{Method::kPost, "/detokenize", false, true, nullptr, handle_detokenize},
};

const Route* route_of_path(std::string_view path) {
  for (const Route& route : kRoutes) {
    if (route.is_prefix ? path.starts_with(route.path) && path.size() > route.path.size() : path == route.path)
      return &route;
  }
  return nullptr;
}

std::string_view allowed_methods(const Route& route) {
  return route.method == Method::kGet ? "GET, HEAD, OPTIONS" : "POST, OPTIONS";
}

}  // namespace

const Route* find_route(const Context& context, const Request& request, Response& refusal) {
  if (is_foreign_origin(request.origin, request.host)) {
    refusal = error_response(403, "permission_error",
                             "a web page of another origin may not use this server (CORS is closed)", "foreign_origin");
    return nullptr;
  }
  const Route* route = route_of_path(request.path);
  if (route == nullptr) {
    std::string paths;
    for (const Route& r : kRoutes) {
      if (r.needs_key && !r.is_prefix) paths += (paths.empty() ? "" : ", ") + std::string(r.path);
    }
    refusal = error_response(404, "invalid_request_error", fmt::format("no such path here; there are {}", paths),
                             "not_found");
    return nullptr;
  }
  if (request.method == Method::kOptions) {
    refusal = Response{};
    refusal.status = 204;
    refusal.content_type.clear();
    refusal.headers = {{"Allow", std::string(allowed_methods(*route))}};
    return nullptr;
  }
  const bool get = request.method == Method::kGet || request.method == Method::kHead;
  if (route->method == Method::kGet ? !get : request.method != route->method) {
    refusal =
        error_response(405, "invalid_request_error",
                       fmt::format("{} does not take this method; accepted: {}", route->path, allowed_methods(*route)),
                       "method_not_allowed");
    refusal.headers = {{"Allow", std::string(allowed_methods(*route))}};
    return nullptr;
  }
  if (route->needs_key && !context.options.api_keys.empty() &&
      !is_authorized(request.authorization, context.options.api_keys)) {
    refusal = error_response(401, "invalid_request_error",
                             request.authorization.empty()
                                 ? "this server wants an API key: send the header \"Authorization: Bearer KEY\""
                                 : "the API key is not one of this server's",
                             "invalid_api_key");
    refusal.headers = {{"WWW-Authenticate", "Bearer"}};
    return nullptr;
  }
  return route;
}

}  // namespace sterling::server
