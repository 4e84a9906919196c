// The messages of a chat, checked and brought into the form that chat templates read.
#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "protocol/openai/fields.h"

namespace sterling::protocol::openai {
namespace {

namespace json = boost::json;

constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user", "assistant", "tool"};

RequestError bad_part(const std::string& path, const json::value& type) {
  const std::string_view name = type.is_string() ? std::string_view(type.get_string()) : std::string_view();
  const auto refuse = [&](std::string_view what) {
    return unsupported(path, fmt::format("{} is {} (\"{}\"); this server reads text only", path, what, name));
  };
  if (name == "image_url" || name == "image" || name == "input_image") return refuse("an image");
  if (name == "input_audio" || name == "audio_url" || name == "audio") return refuse("audio");
  if (name == "video_url" || name == "video") return refuse("a video");
  if (name == "file" || name == "input_file") return refuse("a file");
  return invalid_value(path + ".type", fmt::format("{}.type is {}; accepted: \"text\"", path, describe(type)));
}

// A string, or text parts: as a list for templates that read lists, otherwise joined.
Outcome<json::value> read_content(const json::value& content, const std::string& path, const ChatParsing& parsing) {
  if (content.is_string()) return content;
  if (!content.is_array()) return invalid_type(path, content, "a string or an array of text parts");
  json::array parts;
  std::string joined;
  for (std::size_t i = 0; i < content.get_array().size(); ++i) {
    const json::value& part = content.get_array()[i];
    const std::string where = fmt::format("{}[{}]", path, i);
    if (!part.is_object()) return invalid_type(where, part, "a text part: {\"type\": \"text\", \"text\": …}");
    const json::value* type = part.get_object().if_contains("type");
    if (type == nullptr || !type->is_string() || type->get_string() != "text") {
      return bad_part(where, type == nullptr ? json::value() : *type);
    }
    const json::value* text = part.get_object().if_contains("text");
    if (text == nullptr || !text->is_string()) {
      return invalid_type(where + ".text", text == nullptr ? json::value() : *text, "a string");
    }
    if (i > 0) joined += '\n';
    joined += std::string_view(text->get_string());
    parts.push_back(json::object{{"type", "text"}, {"text", *text}});
  }
  if (parsing.template_reads_parts) return json::value(std::move(parts));
  return json::value(joined);
}

// OpenAI sends a call's arguments as JSON text; templates iterate over them as a mapping.
Outcome<json::value> read_tool_calls(const json::value& calls, const std::string& path) {
  if (!calls.is_array()) return invalid_type(path, calls, "an array of tool calls");
  json::value out = calls;
  for (std::size_t i = 0; i < out.get_array().size(); ++i) {
    const std::string where = fmt::format("{}[{}].function", path, i);
    json::value& call = out.get_array()[i];
    json::value* function = call.is_object() ? call.get_object().if_contains("function") : nullptr;
    if (function == nullptr || !function->is_object()) {
      return invalid_type(where, function == nullptr ? json::value() : *function, "an object with name and arguments");
    }
    const json::value* name = function->get_object().if_contains("name");
    if (name == nullptr || !name->is_string()) {
      return invalid_type(where + ".name", name == nullptr ? json::value() : *name, "a string");
    }
    json::value* arguments = function->get_object().if_contains("arguments");
    if (arguments == nullptr || arguments->is_object()) continue;
    if (!arguments->is_string()) return invalid_type(where + ".arguments", *arguments, "JSON text of an object");
    if (arguments->get_string().empty()) {
      *arguments = json::object();
      continue;
    }
    Outcome<json::object> parsed = parse_body(arguments->get_string());
    if (!parsed) {
      return invalid_value(where + ".arguments", fmt::format("{}.arguments is {}; accepted: JSON text of an object",
                                                             where, describe(*arguments)));
    }
    *arguments = std::move(*parsed);
  }
  return out;
}

Outcome<json::object> read_message(const json::value& value, const std::string& path, const ChatParsing& parsing) {
  if (!value.is_object()) return invalid_type(path, value, "an object with role and content");
  const json::object& message = value.get_object();
  const json::value* role = message.if_contains("role");
  if (role == nullptr) {
    return RequestError{ErrorCode::kInvalidArgument,
                        path + ".role is missing; accepted: one of " + fmt::format("{}", fmt::join(kRoles, ", ")),
                        path + ".role", serving::kMissingParameter};
  }
  if (!role->is_string()) return invalid_type(path + ".role", *role, fmt::format("one of {}", fmt::join(kRoles, ", ")));
  const std::string_view name = role->get_string();
  if (std::find(kRoles.begin(), kRoles.end(), name) == kRoles.end()) {
    return invalid_value(path + ".role", fmt::format("{}.role is {}; accepted: one of {}", path, describe(*role),
                                                     fmt::join(kRoles, ", ")));
  }
  json::object out;
  out["role"] = name == "developer" ? "system" : name;  // OpenAI's newer word for the same; templates know the older

  const json::value* calls = message.if_contains("tool_calls");
  const bool has_calls = name == "assistant" && calls != nullptr && calls->is_array() && !calls->get_array().empty();
  const json::value* content = message.if_contains("content");
  if (content == nullptr || content->is_null()) {
    if (!has_calls) {
      return RequestError{ErrorCode::kInvalidArgument,
                          fmt::format("{}.content is {}; accepted: a string or an array of text parts", path,
                                      content == nullptr ? "missing" : "null"),
                          path + ".content", content == nullptr ? serving::kMissingParameter : serving::kInvalidType};
    }
    out["content"] = "";
  } else {
    Outcome<json::value> text = read_content(*content, path + ".content", parsing);
    if (!text) return text.error();
    out["content"] = std::move(*text);
  }
  if (has_calls) {
    Outcome<json::value> list = read_tool_calls(*calls, path + ".tool_calls");
    if (!list) return list.error();
    out["tool_calls"] = std::move(*list);
  }
  // What else a message carries (name, tool_call_id, reasoning_content) is the template's to read or not.
  for (const auto& field : message) {
    if (field.value().is_null() || out.contains(field.key()) || field.key() == "tool_calls") continue;
    if (field.key() == "audio" || field.key() == "function_call") {
      return unsupported(fmt::format("{}.{}", path, std::string_view(field.key())),
                         fmt::format("{}.{} is not supported", path, std::string_view(field.key())));
    }
    out[field.key()] = field.value();
  }
  return out;
}

}  // namespace

std::string read_messages(FieldReader& fields, const ChatParsing& parsing) {
  const json::value* value = fields.find("messages");
  if (value == nullptr) {
    fields.fail({ErrorCode::kInvalidArgument, "messages is missing; accepted: an array of messages", "messages",
                 serving::kMissingParameter});
    return {};
  }
  if (!value->is_array()) {
    fields.fail(invalid_type("messages", *value, "an array of messages"));
    return {};
  }
  if (value->get_array().empty()) {
    fields.fail(invalid_value("messages", "messages is empty; accepted: at least one message"));
    return {};
  }
  json::array out;
  for (std::size_t i = 0; i < value->get_array().size(); ++i) {
    Outcome<json::object> message = read_message(value->get_array()[i], fmt::format("messages[{}]", i), parsing);
    if (!message) {
      fields.fail(message.error());
      return {};
    }
    out.push_back(std::move(*message));
  }
  return json::serialize(out);
}

}  // namespace sterling::protocol::openai
