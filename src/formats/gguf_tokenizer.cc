// The tokenizer.ggml.* keys of a GGUF file as a plain struct. Ids are checked against the vocabulary, texts for UTF-8.
#include <limits>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "formats/gguf_model.h"
#include "formats/message.h"

namespace sterling::formats {

namespace {

class TokenizerReader {
 public:
  TokenizerReader(const GgufMetadata& metadata, std::string_view file) : metadata_(metadata), file_(file) {}

  Expected<std::optional<GgufTokenizerData>> read() {
    GgufTokenizerData data;
    if (metadata_.find("tokenizer.ggml.model") == nullptr) return std::optional<GgufTokenizerData>();
    text("tokenizer.ggml.model", data.model);
    text("tokenizer.ggml.pre", data.pre);
    texts("tokenizer.ggml.tokens", data.tokens);
    texts("tokenizer.ggml.merges", data.merges);
    if (!error_ && data.tokens.empty()) fail("tokenizer.ggml.tokens", "is missing or empty");

    if (const auto* types = typed<GgufIntegers>("tokenizer.ggml.token_type", "an array of integers")) {
      for (const std::int64_t type : *types) {
        if (type < 0 || type > 6)
          fail("tokenizer.ggml.token_type", fmt::format("the type {} is not from 0 to 6", type));
        data.token_types.push_back(static_cast<std::int32_t>(type));
      }
      same_length("tokenizer.ggml.token_type", types->size(), data.tokens.size());
    }
    if (const auto* scores = typed<GgufNumbers>("tokenizer.ggml.scores", "an array of numbers")) {
      for (const double score : *scores) data.scores.push_back(static_cast<float>(score));
      same_length("tokenizer.ggml.scores", scores->size(), data.tokens.size());
    }

    const std::size_t vocabulary = data.tokens.size();
    data.bos_id = id("tokenizer.ggml.bos_token_id", vocabulary);
    data.eos_id = id("tokenizer.ggml.eos_token_id", vocabulary);
    data.eot_id = id("tokenizer.ggml.eot_token_id", vocabulary);
    data.eom_id = id("tokenizer.ggml.eom_token_id", vocabulary);
    data.unknown_id = id("tokenizer.ggml.unknown_token_id", vocabulary);
    data.padding_id = id("tokenizer.ggml.padding_token_id", vocabulary);
    data.add_bos = flag("tokenizer.ggml.add_bos_token");
    data.add_eos = flag("tokenizer.ggml.add_eos_token");
    data.add_space_prefix = flag("tokenizer.ggml.add_space_prefix");
    if (error_) return *error_;
    return std::optional<GgufTokenizerData>(std::move(data));
  }

 private:
  void fail(std::string_view key, std::string_view problem) {
    if (error_) return;
    error_ = make_error(ErrorCode::kCorrupt, fmt::format("{}: {}: {}", file_, key, problem),
                        fmt::format("{}:{}", file_, key));
  }

  template <typename T>
  const T* typed(std::string_view key, std::string_view expected) {
    const GgufValue* value = metadata_.find(key);
    if (value == nullptr) return nullptr;
    const T* found = std::get_if<T>(value);
    if (found == nullptr) fail(key, fmt::format("expected {}", expected));
    return found;
  }

  void text(std::string_view key, std::string& out) {
    const auto* value = typed<std::string_view>(key, "a string");
    if (value == nullptr) return;
    if (!is_valid_utf8(*value)) fail(key, "is not valid UTF-8");
    out = *value;
  }

  void texts(std::string_view key, std::vector<std::string>& out) {
    const auto* values = typed<GgufStrings>(key, "an array of strings");
    if (values == nullptr) return;
    out.reserve(values->size());
    for (const std::string_view value : *values) {
      if (!is_valid_utf8(value)) fail(key, fmt::format("element {} is not valid UTF-8: {}", out.size(), quote(value)));
      out.emplace_back(value);
    }
  }

  void same_length(std::string_view key, std::size_t found, std::size_t tokens) {
    if (found != tokens) fail(key, fmt::format("has {} elements for {} tokens", found, tokens));
  }

  std::optional<std::int64_t> id(std::string_view key, std::size_t vocabulary) {
    const auto* value = typed<std::int64_t>(key, "an integer");
    if (value == nullptr) return std::nullopt;
    if (*value < 0 || static_cast<std::uint64_t>(*value) >= vocabulary) {
      fail(key, fmt::format("the id {} is outside the vocabulary of {} tokens", *value, vocabulary));
    }
    return *value;
  }

  std::optional<bool> flag(std::string_view key) {
    const auto* value = typed<bool>(key, "a boolean");
    return value == nullptr ? std::nullopt : std::optional<bool>(*value);
  }

  const GgufMetadata& metadata_;
  std::string_view file_;
  std::optional<Error> error_;
};

}  // namespace

Expected<std::optional<GgufTokenizerData>> gguf_tokenizer(const GgufMetadata& metadata, std::string_view file) {
  return TokenizerReader(metadata, file).read();
}

}  // namespace sterling::formats
