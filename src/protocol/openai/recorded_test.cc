// The recorded pairs of tests/protocol.
#include <fstream>
#include <iterator>

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include "protocol/openai/render.h"
#include "protocol/openai/requests.h"

namespace sterling::protocol::openai {
namespace {

namespace json = boost::json;

json::value recorded(const char* name) {
  std::ifstream file(std::string(STERLING_SOURCE_DIR) + "/tests/protocol/" + name);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_FALSE(text.empty()) << name;
  return json::parse(text);
}

template <typename T>
json::value optional_value(const std::optional<T>& v) {
  return v ? json::value(*v) : json::value();
}

template <typename T>
json::array array_of(const std::vector<T>& list) {
  return json::array(list.begin(), list.end());
}

void put_options(json::object& out, const serving::GenerationOptions& o, const serving::StreamOptions& stream) {
  out["temperature"] = optional_value(o.temperature);
  out["top_p"] = optional_value(o.top_p);
  out["top_k"] = optional_value(o.top_k);
  out["min_p"] = optional_value(o.min_p);
  out["repetition_penalty"] = optional_value(o.repetition_penalty);
  out["presence_penalty"] = optional_value(o.presence_penalty);
  out["frequency_penalty"] = optional_value(o.frequency_penalty);
  out["seed"] = o.seed ? json::value(std::to_string(*o.seed)) : json::value();
  out["max_tokens"] = optional_value(o.max_tokens);
  out["max_tokens_param"] = o.max_tokens_param;
  out["min_tokens"] = o.min_tokens;
  out["n"] = o.n;
  out["stop"] = array_of(o.stop);
  out["stop_token_ids"] = array_of(o.stop_token_ids);
  out["ignore_eos"] = o.ignore_eos;
  out["include_stop_in_output"] = o.include_stop_in_output;
  out["skip_special_tokens"] = o.skip_special_tokens;
  out["return_token_ids"] = o.return_token_ids;
  out["logprobs"] = optional_value(o.logprobs);
  json::array biases;
  for (const auto& [id, bias] : o.logit_bias) biases.push_back(json::array{id, bias});
  out["logit_bias"] = biases;
  out["stream"] = stream.stream;
  out["include_usage"] = stream.include_usage;
}

json::object shown(const serving::ChatRequest& r) {
  json::object out;
  out["model"] = r.model;
  out["messages"] = json::parse(r.messages_json);
  out["template_kwargs"] = r.template_kwargs_json.empty() ? json::value() : json::parse(r.template_kwargs_json);
  out["add_generation_prompt"] = r.add_generation_prompt;
  put_options(out, r.options, r.stream);
  return out;
}

json::object shown(const serving::CompletionRequest& r) {
  json::object out;
  out["model"] = r.model;
  json::array prompts;
  for (const serving::Prompt& p : r.prompts) {
    if (const auto* text = std::get_if<std::string>(&p)) {
      prompts.emplace_back(*text);
    } else {
      prompts.emplace_back(array_of(std::get<std::vector<std::int32_t>>(p)));
    }
  }
  out["prompts"] = prompts;
  out["prompt_is_list"] = r.prompt_is_list;
  out["echo"] = r.echo;
  put_options(out, r.options, r.stream);
  return out;
}

template <typename T>
void compare(const json::object& pair, const serving::Outcome<T>& parsed) {
  const std::string name(std::string_view(pair.at("name").as_string()));
  const json::object& expect = pair.at("expect").as_object();
  if (const json::value* error = expect.if_contains("error")) {
    ASSERT_FALSE(parsed.ok()) << name;
    EXPECT_EQ(parsed.error().param, std::string_view(error->at("param").as_string())) << name;
    EXPECT_EQ(parsed.error().reason, std::string_view(error->at("code").as_string())) << name;
    for (const json::value& word : error->at("words").as_array()) {
      EXPECT_NE(parsed.error().message.find(std::string_view(word.as_string())), std::string::npos)
          << name << ": " << parsed.error().message;
    }
    return;
  }
  ASSERT_TRUE(parsed.ok()) << name << ": " << parsed.error().message;
  const json::object found = shown(*parsed);
  for (const auto& field : expect) EXPECT_EQ(found.at(field.key()), field.value()) << name << ": " << field.key();
}

TEST(Recorded, Requests) {
  const json::value file = recorded("recorded_requests.json");
  for (const json::value& value : file.at("requests").as_array()) {
    const json::object& pair = value.as_object();
    const std::string body = json::serialize(pair.at("body"));
    if (pair.at("endpoint") == "/v1/completions") {
      compare(pair, parse_completion_request(body));
    } else {
      compare(pair, parse_chat_request(body, {}));
    }
  }
}

TEST(Recorded, TemplatesThatReadPartsGetThem) {
  const auto parsed = parse_chat_request(
      R"({"messages":[{"role":"user","content":[{"type":"text","text":"one"},{"type":"text","text":"two"}]}]})",
      {.template_reads_parts = true});
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->messages_json,
            R"([{"role":"user","content":[{"type":"text","text":"one"},{"type":"text","text":"two"}]}])");
}

// --- updates from JSON

std::string bytes_of(const json::value& list) {
  std::string out;
  for (const json::value& b : list.as_array()) out += static_cast<char>(b.to_number<int>());
  return out;
}

serving::TokenAlternative alternative(const json::value& value) {
  return {0, bytes_of(value.at("bytes")), value.at("logprob").to_number<float>()};
}

serving::ChoiceDelta delta_of(const json::object& from) {
  serving::ChoiceDelta delta;
  delta.text = std::string_view(from.at("text").as_string());
  if (const auto* ids = from.if_contains("token_ids"))
    delta.token_ids = json::value_to<std::vector<std::int32_t>>(*ids);
  if (const auto* list = from.if_contains("logprobs")) {
    for (const json::value& entry : list->as_array()) {
      serving::TokenLogprobs out;
      out.token = alternative(entry);
      for (const json::value& top : entry.at("top").as_array()) out.top.push_back(alternative(top));
      if (const auto* offset = entry.as_object().if_contains("offset")) out.text_offset = offset->as_int64();
      delta.logprobs.push_back(std::move(out));
    }
  }
  if (const auto* finish = from.if_contains("finish")) {
    delta.finish = *finish == "stop" ? serving::FinishReason::kStop : serving::FinishReason::kLength;
  }
  if (const auto* reason = from.if_contains("stop_reason")) {
    if (reason->is_string()) {
      delta.stop_reason = std::string(std::string_view(reason->as_string()));
    } else {
      delta.stop_reason = reason->to_number<std::int32_t>();
    }
  }
  return delta;
}

serving::Update update_of(const json::object& from) {
  serving::Update update;
  update.started = from.contains("started");
  update.finished = from.contains("finished");
  if (const auto* ids = from.if_contains("prompt_token_ids")) {
    update.prompt_token_ids = json::value_to<std::vector<std::vector<std::int32_t>>>(*ids);
  }
  if (const auto* deltas = from.if_contains("deltas")) {
    for (const json::value& d : deltas->as_array()) update.deltas.push_back(delta_of(d.as_object()));
  }
  if (const auto* error = from.if_contains("error")) {
    update.error = serving::RequestError{
        ErrorCode::kInternal, std::string(std::string_view(error->at("message").as_string())), {}, {}};
  }
  update.usage.prompt_tokens = from.at("usage").at(0).as_int64();
  update.usage.completion_tokens = from.at("usage").at(1).as_int64();
  return update;
}

ResponseShape shape_of(const json::object& from) {
  ResponseShape shape;
  shape.logprobs = from.contains("logprobs");
  shape.token_ids = from.contains("token_ids");
  shape.include_usage = from.contains("include_usage");
  return shape;
}

// Numbers compare by value (0 and 0.0 alike); everything else exactly, the order of keys included.
std::string normal(const json::value& value) {
  if (value.is_number()) return std::to_string(value.to_number<double>());
  if (value.is_array()) {
    std::string out = "[";
    for (const json::value& item : value.as_array()) out += normal(item) + ",";
    return out + "]";
  }
  if (!value.is_object()) return json::serialize(value);
  std::string out = "{";
  for (const auto& field : value.as_object())
    out += std::string(std::string_view(field.key())) + ":" + normal(field.value()) + ",";
  return out + "}";
}

TEST(Recorded, Streams) {
  const ResponseHead head{.id = "id-1", .created = 7, .model = "m", .system_fingerprint = "fp"};
  const json::value file = recorded("streams.json");
  for (const json::value& value : file.at("streams").as_array()) {
    const json::object& pair = value.as_object();
    const std::string name(std::string_view(pair.at("name").as_string()));
    const ResponseShape shape = shape_of(pair.at("shape").as_object());
    std::unique_ptr<StreamRenderer> renderer;
    if (pair.at("kind") == "chat") {
      renderer = std::make_unique<ChatStreamRenderer>(head, shape);
    } else {
      renderer = std::make_unique<CompletionStreamRenderer>(head, shape);
    }
    std::string stream;
    for (const json::value& update : pair.at("updates").as_array())
      stream += renderer->render(update_of(update.as_object()));
    std::size_t at = 0;
    for (const json::value& event : pair.at("events").as_array()) {
      ASSERT_EQ(stream.substr(at, 6), "data: ") << name;
      const std::size_t end = stream.find("\n\n", at);
      ASSERT_NE(end, std::string::npos) << name;
      const std::string found = stream.substr(at + 6, end - at - 6);
      at = end + 2;
      if (event.is_string()) {
        EXPECT_EQ(found, std::string_view(event.as_string())) << name;
      } else {
        EXPECT_EQ(normal(json::parse(found)), normal(event)) << name;
      }
    }
    EXPECT_EQ(at, stream.size()) << name << ": more than was expected: " << stream.substr(at);
  }
}

}  // namespace
}  // namespace sterling::protocol::openai
