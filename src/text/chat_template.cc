#include "text/chat_template.h"

#include <utility>

#include "base/utf8.h"
#include "text/textkit_call.h"

namespace sterling::text {

struct ChatTemplate::Impl {
  tk_template* handle = nullptr;

  Impl() = default;
  ~Impl() { tk_template_free(handle); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::~ChatTemplate() = default;

Expected<std::shared_ptr<const ChatTemplate>> ChatTemplate::compile(std::string_view source,
                                                                    const SpecialTokens& special_tokens,
                                                                    const TemplateLimits& limits) {
  if (Status ready = textkit_ready(); !ready) return ready.error();
  std::string variables = "{";
  for (const auto& [name, text] : special_tokens) {
    if (variables.size() > 1) variables += ',';
    append_json_string(name, variables);
    variables += ':';
    append_json_string(text, variables);
  }
  variables += '}';
  auto impl = std::make_unique<Impl>();
  TextkitResult result;
  tk_template_new(textkit_text(source), textkit_text(variables), limits.fuel, limits.max_output_bytes, &impl->handle,
                  result.result());
  if (!result.ok()) return result.error("chat_template");
  return std::shared_ptr<const ChatTemplate>(new ChatTemplate(std::move(impl)));
}

Expected<std::shared_ptr<const ChatTemplate>> ChatTemplate::compile_named(
    const std::map<std::string, std::string>& sources, const SpecialTokens& special_tokens,
    const TemplateLimits& limits) {
  std::string list = "[";
  for (const auto& [name, source] : sources) {
    if (utf8_valid_prefix(source) != source.size() || utf8_valid_prefix(name) != name.size()) {
      return make_error(ErrorCode::kCorrupt, "the chat template " + name + " is not UTF-8", "chat_template");
    }
    if (list.size() > 1) list += ',';
    list += R"({"name":)";
    append_json_string(name, list);
    list += R"(,"template":)";
    append_json_string(source, list);
    list += '}';
  }
  list += ']';
  return compile(list, special_tokens, limits);
}

Expected<std::string> ChatTemplate::render(const RenderRequest& request) const {
  tk_render_input input = {};
  input.messages = textkit_text(request.messages_json);
  input.tools = textkit_text(request.tools_json);
  input.documents = textkit_text(request.documents_json);
  input.variables = textkit_text(request.extra_kwargs_json);
  input.add_generation_prompt = request.add_generation_prompt ? 1 : 0;
  const std::tm& now = request.now;
  input.now =
      tk_time{now.tm_sec, now.tm_min, now.tm_hour, now.tm_mday, now.tm_mon, now.tm_year, now.tm_wday, now.tm_yday};
  TextkitResult result;
  tk_template_render(impl_->handle, &input, result.result());
  if (!result.ok()) return result.error("messages");
  return result.text();
}

}  // namespace sterling::text
