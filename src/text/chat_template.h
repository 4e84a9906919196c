// Messages to prompt text through the model's own chat template, as Hugging Face transformers renders it.
//
// A ChatTemplate is immutable; any number of threads may render with it at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace sterling::text {

// Bounds for one render, against templates that run away. They change no result of a template that stays below them. One
// gap is known: a template that nests a list in itself twice, dozens of times over, and then joins it with `~` or formats it
// is not stopped. Only the model's own template can do that, never a request.
struct TemplateLimits {
  // About one unit per template instruction and per 64 bytes of text made. A thousand-message chat needs well under a
  // million with the templates of today's models.
  std::uint64_t fuel = 20'000'000;
  std::size_t max_output_bytes = std::size_t{64} << 20;
};

struct RenderRequest {
  std::string_view messages_json;   // list of objects
  std::string_view tools_json;      // list, or empty: the template sees none
  std::string_view documents_json;  // list, or empty
  // Object of further variables ("chat_template_kwargs"): enable_thinking and the like. They win over the special tokens.
  std::string_view extra_kwargs_json;
  bool add_generation_prompt = true;
  std::tm now = {};  // local time for strftime_now()
};

class ChatTemplate {
 public:
  // Names ("bos_token", "eos_token", …) and texts of the special tokens, which templates read as variables.
  using SpecialTokens = std::map<std::string, std::string>;

  // `source` is the template text, or the JSON list form of tokenizer_config.json's chat_template
  // ([{"name": …, "template": …}, …]): "tool_use" is then taken for requests with tools when there is one, "default"
  // otherwise. kCorrupt names the line of a syntax error.
  static Expected<std::shared_ptr<const ChatTemplate>> compile(std::string_view source,
                                                               const SpecialTokens& special_tokens,
                                                               const TemplateLimits& limits = {});
  // The same from named templates directly; one of them must be "default".
  static Expected<std::shared_ptr<const ChatTemplate>> compile_named(const std::map<std::string, std::string>& sources,
                                                                     const SpecialTokens& special_tokens,
                                                                     const TemplateLimits& limits = {});

  ~ChatTemplate();
  ChatTemplate(const ChatTemplate&) = delete;
  ChatTemplate& operator=(const ChatTemplate&) = delete;

  // kInvalidArgument: JSON that does not parse, messages that the template refuses (the message of its raise_exception,
  // verbatim) or cannot render. kResourceExhausted: a limit.
  Expected<std::string> render(const RenderRequest& request) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sterling::text
