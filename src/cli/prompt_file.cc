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

class Reader {
 public:
  Reader(const std::string& path, const formats::Checkpoint& checkpoint, const PromptLimits& limits)
      : path_(path), checkpoint_(checkpoint), limits_(limits) {}

  Expected<Tokens> from_object(const json::object& object, const std::string& where) {
    if (const json::value* tokens = object.if_contains("tokens")) return ids(*tokens, where);
    for (const char* key : {"text", "prompt"}) {
      const json::value* text = object.if_contains(key);
      if (text != nullptr && text->is_string()) return encode(std::string(text->get_string()), true, where);
    }
    const json::value* messages = object.if_contains("messages");
    if (messages != nullptr && messages->is_array()) return rendered(*messages, where);
    return fail(where, "holds none of tokens (ids), text, prompt (strings), messages (a list)");
  }

  Expected<Tokens> encode(const std::string& text, bool specials, const std::string& where) {
    if (Status status = load(); !status) return status.error();
    auto tokens = tokenizer_->encode(text, {.add_special_tokens = specials, .parse_special = true});
    if (!tokens) return fail(where, tokens.error().message);
    return tokens;
  }

  Error fail(const std::string& where, std::string_view what) const {
    return make_error(ErrorCode::kInvalidArgument, fmt::format("{}: {}", where, what), path_);
  }

 private:
  Status load() {
    if (tokenizer_ != nullptr) return {};
    auto tokenizer = load_tokenizer(checkpoint_);
    if (!tokenizer) return tokenizer.error();
    tokenizer_ = *tokenizer;
    return {};
  }

  Expected<Tokens> ids(const json::value& value, const std::string& where) const {
    const std::string wanted =
        fmt::format("tokens is expected to be a list of ids from 0 to {}", limits_.vocab_size - 1);
    if (!value.is_array()) return fail(where, wanted);
    Tokens tokens;
    for (const json::value& id : value.get_array()) {
      if (!id.is_int64() || id.get_int64() < 0 || id.get_int64() >= limits_.vocab_size) return fail(where, wanted);
      tokens.push_back(static_cast<std::int32_t>(id.get_int64()));
    }
    return tokens;
  }

  Expected<Tokens> rendered(const json::value& messages, const std::string& where) {
    if (Status status = load(); !status) return status.error();
    if (template_ == nullptr) {
      auto loaded = load_chat_template(checkpoint_, *tokenizer_, std::nullopt);
      if (!loaded) return loaded.error();
      template_ = *loaded;
      if (template_ == nullptr) return fail(where, "messages need a chat template, and the checkpoint has none");
    }
    const std::string text = json::serialize(messages);
    text::RenderRequest request;
    request.messages_json = text;
    request.add_generation_prompt = false;
    auto prompt = template_->render(request);
    if (!prompt) return fail(where, prompt.error().message);
    return encode(*prompt, false, where);
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

Expected<PromptFile> read_prompts(const std::string& path, const formats::Checkpoint& checkpoint,
                                  const PromptLimits& limits) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return make_error(ErrorCode::kNotFound, fmt::format("{}: cannot be read", path), path);
  std::ostringstream bytes;
  bytes << stream.rdbuf();
  const std::string text = bytes.str();
  PromptFile file;
  file.sha256 = platform::sha256(text);
  Reader reader(path, checkpoint, limits);
  if (is_jsonl(text)) {
    std::istringstream lines(text);
    std::size_t number = 0;
    for (std::string line; std::getline(lines, line);) {
      ++number;
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      const std::string where = fmt::format("{}:{}", path, number);
      auto object = formats::parse_json_object(line, where);
      if (!object) return object.error();
      auto tokens = reader.from_object(*object, where);
      if (!tokens) return tokens.error();
      if (!keep(file, std::move(*tokens), limits)) break;
    }
  } else {
    auto tokens = reader.encode(text, true, path);
    if (!tokens) return tokens.error();
    for (std::size_t at = 0; at < tokens->size(); at += static_cast<std::size_t>(limits.context)) {
      const std::size_t end = std::min(tokens->size(), at + static_cast<std::size_t>(limits.context));
      const auto begin = tokens->begin();
      if (!keep(file, Tokens(begin + static_cast<std::ptrdiff_t>(at), begin + static_cast<std::ptrdiff_t>(end)),
                limits))
        break;
    }
  }
  if (file.prompts.empty()) return reader.fail(path, "holds no prompt");
  return file;
}

}  // namespace sterling::cli
