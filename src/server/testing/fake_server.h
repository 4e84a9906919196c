// Test only: a whole server on loopback over a scripted engine.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include "server/server.h"
#include "server/testing/http_client.h"
#include "serving/testing/byte_model.h"
#include "serving/testing/fake_engine.h"

namespace sterling::server::testing {

inline const std::string kHello = R"({"model":"byte-model","messages":[{"role":"user","content":"Hi"}]})";

// Members of `more` replace or join those of `kHello`.
inline std::string hello_with(std::string_view more) {
  boost::json::object body = boost::json::parse(kHello).as_object();
  const boost::json::value extra = boost::json::parse(more);
  for (const auto& field : extra.as_object()) body[field.key()] = field.value();
  return boost::json::serialize(body);
}

struct FakeServer {
  explicit FakeServer(std::string text, const std::function<void(ServerOptions&)>& change = {},
                      std::chrono::microseconds step = {}, bool paused = false,
                      const std::function<void(serving::ServiceOptions&)>& change_service = {})
      : engine({.script = [text](const engine::TokenRequest&,
                                 std::size_t at) { return serving::testing::scripted(text, at); },
                .step = step,
                .max_queue = 8,
                .paused = paused}) {
    start(change, change_service);
  }
  explicit FakeServer(serving::testing::FakeEngineOptions options) : engine(std::move(options)) { start({}, {}); }

  void start(const std::function<void(ServerOptions&)>& change,
             const std::function<void(serving::ServiceOptions&)>& change_service) {
    serving::ServiceOptions service_options = serving::testing::byte_model_options();
    if (change_service) change_service(service_options);
    service = std::make_unique<serving::Service>(engine, std::move(service_options));
    ServerOptions options;
    options.port = 0;
    options.version = "1.2.3";
    if (change) change(options);
    auto started = Server::start(*service, std::move(options));
    EXPECT_TRUE(started.ok()) << (started.ok() ? "" : started.error().message);
    server = std::move(*started);
    server->set_ready(true);
  }

  HttpAnswer call(std::string_view method, std::string_view path, std::string_view body = {},
                  std::string_view headers = {}) {
    return HttpClient(server->port()).call(method, path, body, headers);
  }
  HttpAnswer chat(std::string_view body = kHello) { return call("POST", "/v1/chat/completions", body); }

  serving::testing::FakeEngine engine;
  std::unique_ptr<serving::Service> service;
  std::unique_ptr<Server> server;
};

// The JSON of every "data: " event but "[DONE]".
inline std::vector<boost::json::value> events_of(const std::string& stream, bool* done = nullptr) {
  std::vector<boost::json::value> out;
  if (done != nullptr) *done = false;
  for (std::size_t at = 0; at < stream.size();) {
    const std::size_t end = stream.find("\n\n", at);
    const std::string event = stream.substr(at, end - at);
    at = end == std::string::npos ? stream.size() : end + 2;
    if (event.rfind("data: ", 0) != 0) continue;
    if (event == "data: [DONE]") {
      if (done != nullptr) *done = true;
      continue;
    }
    out.push_back(boost::json::parse(event.substr(6)));
  }
  return out;
}

// error.param, error.code and error.message of a refusal ("" for null).
inline std::string error_field(const HttpAnswer& answer, std::string_view field) {
  boost::json::error_code error;
  const boost::json::value value = boost::json::parse(answer.body, error);
  if (error || !value.is_object() || !value.get_object().contains("error")) return "not an error: " + answer.body;
  const boost::json::value& found = value.at("error").at(field);
  return found.is_string() ? std::string(std::string_view(found.get_string())) : std::string();
}

}  // namespace sterling::server::testing
