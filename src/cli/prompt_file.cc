#include "cli/prompt_file.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include "cli/runtime.h"
#include "formats/json.h"
#include "platform/sha256.h"

namespace sterling::cli {
namespace {

namespace json = boost::json;

using Tokens = std::vector<std::int32_t>;

Error fail(const std::string& where, const std::string& path, std::string_view what) {
  return make_error(ErrorCode::kInvalidArgument, fmt::format("{}: {}", where, what), path);
}

Expected<RawPrompt> read_object(const json::object& object, const std::string& where, const std::string& path) {
  RawPrompt prompt;
  prompt.where = where;
  if (const json::value* tokens = object.if_contains("tokens")) {
    if (!tokens->is_array() || tokens->get_array().empty()) {
      return fail(where, path, "tokens is expected to be a list of ids");
    }
    prompt.tokens = tokens->get_array();
    return prompt;
  }
  for (const char* key : {"text", "prompt"}) {
    const json::value* text = object.if_contains(key);
    if (text == nullptr || !text->is_string()) continue;
    prompt.text = std::string(text->get_string());
    return prompt;
  }
  const json::value* messages = object.if_contains("messages");
  if (messages != nullptr && messages->is_array() && !messages->get_array().empty()) {
    prompt.messages = messages->get_array();
    return prompt;
  }
  return fail(where, path, "holds none of tokens (ids), text, prompt (strings), messages (a list)");
}

// Turns prompts into tokens of one model.
class Encoder {
 public:
  Encoder(const std::string& path, const formats::Checkpoint& checkpoint, const PromptLimits& limits)
      : path_(path), checkpoint_(checkpoint), limits_(limits) {}

  Expected<Tokens> encode(const RawPrompt& prompt) {
    if (prompt.text) return encode_text(*prompt.text, true, prompt.where);
    if (!prompt.messages.empty()) return rendered(prompt.messages, prompt.where);
    return ids(prompt.tokens, prompt.where);
  }

 private:
  Status load() {
    if (tokenizer_ != nullptr) return {};
    auto tokenizer = load_tokenizer(checkpoint_);
    if (!tokenizer) return tokenizer.error();
    tokenizer_ = *tokenizer;
    return {};
  }

  Expected<Tokens> encode_text(const std::string& text, bool specials, const std::string& where) {
    if (Status status = load(); !status) return status.error();
    auto tokens = tokenizer_->encode(text, {.add_special_tokens = specials, .parse_special = true});
    if (!tokens) return fail(where, path_, tokens.error().message);
    return tokens;
  }

  Expected<Tokens> ids(const json::array& list, const std::string& where) const {
    Tokens tokens;
    for (const json::value& id : list) {
      if (!id.is_int64() || id.get_int64() < 0 || id.get_int64() >= limits_.vocab_size) {
        return fail(where, path_,
                    fmt::format("tokens is expected to be a list of ids from 0 to {}", limits_.vocab_size - 1));
      }
      tokens.push_back(static_cast<std::int32_t>(id.get_int64()));
    }
    return tokens;
  }

  Expected<Tokens> rendered(const json::array& messages, const std::string& where) {
    if (Status status = load(); !status) return status.error();
    if (template_ == nullptr) {
      auto loaded = load_chat_template(checkpoint_, *tokenizer_, std::nullopt);
      if (!loaded) return loaded.error();
      template_ = *loaded;
      if (template_ == nullptr) {
        return fail(where, path_, "messages need a chat template, and the checkpoint has none");
      }
    }
    const std::string text = json::serialize(messages);
    text::RenderRequest request;
    request.messages_json = text;
    request.add_generation_prompt = false;
    auto prompt = template_->render(request);
    if (!prompt) return fail(where, path_, prompt.error().message);
    return encode_text(*prompt, false, where);
  }

  const std::string& path_;
  const formats::Checkpoint& checkpoint_;
  const PromptLimits& limits_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::shared_ptr<const text::ChatTemplate> template_;
};

// Keeps a prompt within the limits. False: there is room for no more.
bool keep(PromptFile& file, Tokens tokens, const PromptLimits& limits) {
  const std::int64_t room = limits.max_tokens > 0 ? limits.max_tokens - file.tokens : limits.context;
  const std::int64_t most = std::min(limits.context, room);
  if (most <= 0) return false;
  if (static_cast<std::int64_t>(tokens.size()) > most) {
    file.cut += static_cast<std::int64_t>(tokens.size()) > limits.context ? 1 : 0;
    tokens.resize(static_cast<std::size_t>(most));
  }
  file.tokens += static_cast<std::int64_t>(tokens.size());
  if (!tokens.empty()) file.prompts.push_back(std::move(tokens));
  return true;
}

bool is_jsonl(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string::npos && text[first] == '{';
}

}  // namespace

Expected<RawPromptFile> read_raw_prompts(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream bytes;
  if (stream) bytes << stream.rdbuf();
  if (!stream) return make_error(ErrorCode::kNotFound, fmt::format("{}: cannot be read", path), path);
  const std::string text = bytes.str();
  RawPromptFile file;
  file.sha256 = platform::sha256(text);
  file.plain = !is_jsonl(text);
  if (file.plain) {
    if (text.empty()) return fail(path, path, "holds no prompt");
    file.prompts.push_back({path, {}, text, {}});
    return file;
  }
  std::istringstream lines(text);
  std::size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = fmt::format("{}:{}", path, number);
    auto object = formats::parse_json_object(line, where);
    if (!object) return object.error();
    auto prompt = read_object(*object, where, path);
    if (!prompt) return prompt.error();
    file.prompts.push_back(std::move(*prompt));
  }
  return file;
}

Expected<PromptFile> read_prompts(const std::string& path, const formats::Checkpoint& checkpoint,
                                  const PromptLimits& limits) {
  auto raw = read_raw_prompts(path);
  if (!raw) return raw.error();
  PromptFile file;
  file.sha256 = raw->sha256;
  Encoder encoder(path, checkpoint, limits);
  for (const RawPrompt& prompt : raw->prompts) {
    auto tokens = encoder.encode(prompt);
    if (!tokens) return tokens.error();
    if (!raw->plain) {
      if (!keep(file, std::move(*tokens), limits)) break;
      continue;
    }
    for (std::size_t at = 0; at < tokens->size(); at += static_cast<std::size_t>(limits.context)) {
      const std::size_t end = std::min(tokens->size(), at + static_cast<std::size_t>(limits.context));
      const auto begin = tokens->begin();
      if (!keep(file, Tokens(begin + static_cast<std::ptrdiff_t>(at), begin + static_cast<std::ptrdiff_t>(end)),
                limits)) {
        break;
      }
    }
  }
  if (file.prompts.empty()) return fail(path, path, "holds no prompt");
  return file;
}

}  // namespace sterling::cli
