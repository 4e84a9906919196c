#include "protocol/openai/fields.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <utility>

#include <fmt/format.h>

namespace sterling::protocol::openai {
namespace {

constexpr std::int64_t kMaxInt64 = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMaxInt32 = std::numeric_limits<std::int32_t>::max();
constexpr std::size_t kMaxStops = 16;
constexpr std::size_t kMaxBiases = 1024;

void read_stop(FieldReader& fields, serving::GenerationOptions& options) {
  const boost::json::value* value = fields.find("stop");
  if (value == nullptr) return;
  const auto add = [&](const boost::json::value& item, const std::string& path) {
    if (!item.is_string()) return fields.fail(invalid_type(path, item, "a string"));
    if (item.get_string().empty())
      return fields.fail(invalid_value(path, path + " is empty; accepted: a text to stop at"));
    options.stop.emplace_back(std::string_view(item.get_string()));
  };
  if (!value->is_array()) {
    if (!value->is_string()) return fields.fail(invalid_type("stop", *value, "a string or an array of strings"));
    return add(*value, "stop");
  }
  const boost::json::array& list = value->get_array();
  if (list.size() > kMaxStops) {
    return fields.fail(
        invalid_value("stop", fmt::format("stop has {} strings; accepted: at most {}", list.size(), kMaxStops)));
  }
  for (std::size_t i = 0; i < list.size(); ++i) add(list[i], fmt::format("stop[{}]", i));
}

void read_logit_bias(FieldReader& fields, serving::GenerationOptions& options) {
  const boost::json::value* value = fields.find("logit_bias");
  if (value == nullptr) return;
  if (!value->is_object()) return fields.fail(invalid_type("logit_bias", *value, "an object of token ids and biases"));
  if (value->get_object().size() > kMaxBiases) {
    return fields.fail(invalid_value("logit_bias", fmt::format("logit_bias has {} entries; accepted: at most {}",
                                                               value->get_object().size(), kMaxBiases)));
  }
  for (const auto& field : value->get_object()) {
    const std::string_view key = field.key();
    const std::string path = fmt::format("logit_bias.{}", shorten(key, 32));
    std::int32_t id = 0;
    const auto parsed = std::from_chars(key.data(), key.data() + key.size(), id);
    if (parsed.ec != std::errc() || parsed.ptr != key.data() + key.size()) {
      return fields.fail(invalid_value(path, fmt::format("{} is not a token id", path)));
    }
    if (!field.value().is_number()) return fields.fail(invalid_type(path, field.value(), "a number from -100 to 100"));
    const double bias = field.value().to_number<double>();
    if (!(bias >= -100.0 && bias <= 100.0)) {
      return fields.fail(invalid_value(path, fmt::format("{} is {}; accepted: a number from -100 to 100", path, bias)));
    }
    options.logit_bias.emplace_back(id, static_cast<float>(bias));
  }
}

// Any 64 bits, signed or not: only equality of seeds matters.
void read_seed(FieldReader& fields, serving::GenerationOptions& options) {
  const boost::json::value* value = fields.find("seed");
  if (value == nullptr) return;
  if (value->is_uint64()) {
    options.seed = value->get_uint64();
  } else if (const std::optional<std::int64_t> seed = as_integer(*value)) {
    options.seed = static_cast<std::uint64_t>(*seed);
  } else {
    fields.fail(invalid_type("seed", *value, "an integer of 64 bits"));
  }
}

void read_max_tokens(FieldReader& fields, serving::GenerationOptions& options) {
  // 0 is refused later where the request has no use for it.
  const auto old_name = fields.integer("max_tokens", 0, kMaxInt64);
  const auto new_name = fields.integer("max_completion_tokens", 0, kMaxInt64);
  if (old_name && new_name && *old_name != *new_name) {
    return fields.fail(
        invalid_value("max_tokens", fmt::format("max_tokens is {} and max_completion_tokens is {}; accepted: one of "
                                                "them, or both alike",
                                                *old_name, *new_name)));
  }
  options.max_tokens = new_name ? new_name : old_name;
  if (new_name) options.max_tokens_param = "max_completion_tokens";
}

// Fields that would change the answer and cannot be had, with what to do instead.
struct Refusal {
  std::string_view name, advice;
};
constexpr std::string_view kNoConstraint = "answers cannot be constrained to a grammar or schema yet";
constexpr std::string_view kNoTools = "tool calls are not implemented yet";
constexpr std::string_view kOtherSampler = "this server samples by temperature, top_k, top_p, min_p and penalties";
constexpr std::array kRefusals = {
    Refusal{"tools", kNoTools},
    Refusal{"functions", kNoTools},
    Refusal{"function_call", kNoTools},
    Refusal{"audio", "this server writes text only"},
    Refusal{"web_search_options", "this server does not search the web"},
    Refusal{"reasoning_effort", "say it to the model's chat template, with chat_template_kwargs"},
    Refusal{"verbosity", "say it to the model in its instructions"},
    Refusal{"enable_thinking",
            "say it to the model's chat template: \"chat_template_kwargs\": {\"enable_thinking\": …}"},
    Refusal{"thinking", "say it to the model's chat template, with chat_template_kwargs"},
    Refusal{"guided_json", kNoConstraint},
    Refusal{"guided_regex", kNoConstraint},
    Refusal{"guided_choice", kNoConstraint},
    Refusal{"guided_grammar", kNoConstraint},
    Refusal{"structured_outputs", kNoConstraint},
    Refusal{"json_schema", kNoConstraint},
    Refusal{"grammar", kNoConstraint},
    Refusal{"regex", kNoConstraint},
    Refusal{"ebnf", kNoConstraint},
    Refusal{"use_beam_search", kOtherSampler},
    Refusal{"length_penalty", kOtherSampler},
    Refusal{"typical_p", kOtherSampler},
    Refusal{"mirostat", kOtherSampler},
    Refusal{"repeat_penalty", "its name here is repetition_penalty"},
    Refusal{"n_predict", "its name here is max_tokens"},
    Refusal{"max_new_tokens", "its name here is max_tokens"},
    Refusal{"prompt_logprobs", "use /v1/completions with echo and logprobs"},
    Refusal{"truncate_prompt_tokens", "a prompt is never truncated"},
    Refusal{"bad_words", "use logit_bias"},
    Refusal{"allowed_token_ids", "use logit_bias"},
};

}  // namespace

void read_generation_options(FieldReader& fields, serving::GenerationOptions& options) {
  options.temperature = fields.number("temperature", 0.0, 2.0);
  options.top_p = fields.number("top_p", 0.0, 1.0);
  // The smallest set of tokens whose mass reaches 0 is the best token alone; the engine wants a positive mass.
  if (options.top_p) options.top_p = std::max(*options.top_p, std::numeric_limits<float>::min());
  if (const auto top_k = fields.integer("top_k", -1, kMaxInt32)) {
    options.top_k = static_cast<std::int32_t>(std::max<std::int64_t>(*top_k, 0));  // -1 is vLLM's "off"
  }
  options.min_p = fields.number("min_p", 0.0, 1.0);
  options.repetition_penalty = fields.number("repetition_penalty", 0.01, 100.0);
  options.frequency_penalty = fields.number("frequency_penalty", -2.0, 2.0);
  options.presence_penalty = fields.number("presence_penalty", -2.0, 2.0);
  options.n = static_cast<std::int32_t>(fields.integer("n", 1, 128).value_or(1));
  options.min_tokens = static_cast<std::int32_t>(fields.integer("min_tokens", 0, kMaxInt32).value_or(0));
  options.ignore_eos = fields.boolean("ignore_eos", false);
  options.include_stop_in_output = fields.boolean("include_stop_str_in_output", false);
  options.skip_special_tokens = fields.boolean("skip_special_tokens", true);
  options.return_token_ids = fields.boolean("return_token_ids", false);
  options.stop_token_ids = fields.token_ids("stop_token_ids");
  read_max_tokens(fields, options);
  read_seed(fields, options);
  read_stop(fields, options);
  read_logit_bias(fields, options);
}

serving::StreamOptions read_stream_options(FieldReader& fields) {
  serving::StreamOptions out;
  out.stream = fields.boolean("stream", false);
  const boost::json::value* value = fields.find("stream_options");
  if (value == nullptr) return out;
  if (!value->is_object()) {
    fields.fail(invalid_type("stream_options", *value, "an object"));
    return out;
  }
  FieldReader options(value->get_object(), "stream_options");
  out.include_usage = options.boolean("include_usage", false);
  options.ignore({"include_obfuscation", "continuous_usage_stats"});
  options.finish();
  if (options.failed()) fields.fail(*options.error());
  return out;
}

void read_harmless_fields(FieldReader& fields) {
  fields.ignore({"user", "metadata", "store", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
                 "service_tier", "prediction", "parallel_tool_calls", "request_id", "priority", "cache_salt",
                 "cache_prompt", "spaces_between_special_tokens"});
}

void refuse_unsupported_fields(FieldReader& fields) {
  for (const Refusal& r : kRefusals) fields.refuse(r.name, r.advice);

  if (const boost::json::value* choice = fields.find("tool_choice")) {
    const bool harmless = choice->is_string() && (choice->get_string() == "none" || choice->get_string() == "auto");
    if (!harmless) fields.fail(unsupported("tool_choice", fmt::format("tool_choice is not supported: {}", kNoTools)));
  }
  if (const boost::json::value* format = fields.find("response_format")) {
    const boost::json::value* type = format->is_object() ? format->get_object().if_contains("type") : nullptr;
    if (type == nullptr || !type->is_string()) {
      fields.fail(invalid_type("response_format", *format, "{\"type\": \"text\"}"));
    } else if (type->get_string() != "text") {
      fields.fail(unsupported("response_format.type", fmt::format("response_format.type is {}; accepted: \"text\"; {}",
                                                                  describe(*type), kNoConstraint)));
    }
  }
  if (const boost::json::value* modalities = fields.find("modalities")) {
    if (!(*modalities == boost::json::value(boost::json::array{"text"}))) {
      fields.fail(
          unsupported("modalities", "modalities is not supported beyond [\"text\"]: this server writes text only"));
    }
  }
}

std::string read_template_kwargs(FieldReader& fields) {
  const boost::json::value* value = fields.find("chat_template_kwargs");
  if (value == nullptr) return {};
  if (!value->is_object()) {
    fields.fail(invalid_type("chat_template_kwargs", *value, "an object"));
    return {};
  }
  // These are what the request is made of; a template variable of the same name would replace it unseen.
  for (const std::string_view name : {"messages", "tools", "documents", "add_generation_prompt"}) {
    if (!value->get_object().contains(name)) continue;
    const std::string path = fmt::format("chat_template_kwargs.{}", name);
    fields.fail(
        invalid_value(path, path + " would replace the request's own; accepted: further variables of the template"));
  }
  return boost::json::serialize(*value);
}

}  // namespace sterling::protocol::openai
