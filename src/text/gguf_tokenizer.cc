// A GGUF file names its pre-tokeniser by one word (tokenizer.ggml.pre) instead of carrying it. The table below says what
// each word stands for in the tokenizer.json of the models that use it; a word that is not in it is refused, because a
// wrong split gives wrong ids without any sign of it.
#include "text/gguf_tokenizer.h"

#include <array>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/utf8.h"
#include "text/textkit_call.h"

namespace sterling::text {
namespace {

struct PreTokenizer {
  std::string_view name;
  std::string_view split;  // regular expression whose matches become pieces; empty: ByteLevel's own (GPT-2)
  bool single_digits;      // every digit is a piece of its own, before anything else
  bool nfc;                // Unicode normalisation form C first
  bool ignore_merges;      // a piece that is in the vocabulary is taken whole
  bool adds_bos;           // unless tokenizer.ggml.add_bos_token says otherwise
};

constexpr std::string_view kLlama3Split =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Split =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35Split =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::array kPreTokenizers = {
    PreTokenizer{"gpt-2", "", false, false, false, false},
    PreTokenizer{"smollm", "", true, false, false, false},
    PreTokenizer{"starcoder", "", true, false, false, false},
    PreTokenizer{"refact", "", true, false, false, false},
    PreTokenizer{"llama-bpe", kLlama3Split, false, false, true, true},
    PreTokenizer{"llama3", kLlama3Split, false, false, true, true},
    PreTokenizer{"llama-v3", kLlama3Split, false, false, true, true},
    PreTokenizer{"qwen2", kQwen2Split, false, true, false, false},
    PreTokenizer{"qwen35", kQwen35Split, false, true, false, false},
};

Error corrupt(std::string message, std::string where) {
  return make_error(ErrorCode::kCorrupt, std::move(message), std::move(where));
}

Expected<PreTokenizer> find_pre_tokenizer(const GgufVocabulary& vocabulary) {
  if (vocabulary.model != "gpt2") {
    return make_error(ErrorCode::kUnsupported,
                      "tokenizer.ggml.model is \"" + vocabulary.model + "\"; accepted: \"gpt2\" (byte-level BPE)",
                      "tokenizer.ggml.model");
  }
  std::string accepted;
  for (const PreTokenizer& pre : kPreTokenizers) {
    if (pre.name == vocabulary.pre) return pre;
    accepted += accepted.empty() ? "" : ", ";
    accepted += pre.name;
  }
  return make_error(ErrorCode::kUnsupported, "tokenizer.ggml.pre is \"" + vocabulary.pre + "\"; accepted: " + accepted,
                    "tokenizer.ggml.pre");
}

std::string element(std::string_view array, std::size_t index) {
  return std::string(array) + "[" + std::to_string(index) + "]";
}

// Lengths, ids in range, UTF-8, no two ids for one token.
Status check(const GgufVocabulary& vocabulary) {
  const std::size_t count = vocabulary.tokens.size();
  if (count == 0) return corrupt("tokenizer.ggml.tokens is empty", "tokenizer.ggml.tokens");
  if (!vocabulary.token_types.empty() && vocabulary.token_types.size() != count) {
    return corrupt("tokenizer.ggml.token_type has " + std::to_string(vocabulary.token_types.size()) + " entries for " +
                       std::to_string(count) + " tokens",
                   "tokenizer.ggml.token_type");
  }
  std::unordered_map<std::string_view, std::size_t> seen;
  seen.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::string& token = vocabulary.tokens[i];
    if (utf8_valid_prefix(token) != token.size()) {
      return corrupt(element("tokenizer.ggml.tokens", i) + " is not UTF-8", element("tokenizer.ggml.tokens", i));
    }
    if (const auto [first, fresh] = seen.emplace(token, i); !fresh) {
      return corrupt(element("tokenizer.ggml.tokens", i) + " repeats the token of id " + std::to_string(first->second),
                     element("tokenizer.ggml.tokens", i));
    }
  }
  const std::pair<std::string_view, std::optional<std::int32_t>> ids[] = {
      {"tokenizer.ggml.bos_token_id", vocabulary.bos_id},
      {"tokenizer.ggml.eos_token_id", vocabulary.eos_id},
      {"tokenizer.ggml.unknown_token_id", vocabulary.unk_id},
      {"tokenizer.ggml.padding_token_id", vocabulary.pad_id}};
  for (const auto& [key, id] : ids) {
    if (id && (*id < 0 || static_cast<std::size_t>(*id) >= count)) {
      return corrupt(std::string(key) + " is " + std::to_string(*id) + "; accepted: 0 to " + std::to_string(count - 1),
                     std::string(key));
    }
  }
  return {};
}

void append_added_tokens(const GgufVocabulary& vocabulary, std::string& json) {
  json += R"("added_tokens":[)";
  bool first = true;
  for (std::size_t i = 0; i < vocabulary.token_types.size(); ++i) {
    const auto type = static_cast<GgufTokenType>(vocabulary.token_types[i]);
    const bool special = type == GgufTokenType::kControl || type == GgufTokenType::kUnknown;
    if (!special && type != GgufTokenType::kUserDefined) continue;
    if (vocabulary.tokens[i].empty()) continue;  // an empty string would match everywhere
    if (!first) json += ',';
    first = false;
    json += R"({"id":)" + std::to_string(i) + R"(,"content":)";
    append_json_string(vocabulary.tokens[i], json);
    json += R"(,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":)";
    json += special ? "true}" : "false}";
  }
  json += ']';
}

void append_pre_tokenizer(const PreTokenizer& pre, std::string& json) {
  json += R"("normalizer":)";
  json += pre.nfc ? R"({"type":"NFC"})" : "null";
  json += R"(,"pre_tokenizer":{"type":"Sequence","pretokenizers":[)";
  if (pre.single_digits) json += R"({"type":"Digits","individual_digits":true},)";
  if (!pre.split.empty()) {
    json += R"({"type":"Split","pattern":{"Regex":)";
    append_json_string(pre.split, json);
    json += R"(},"behavior":"Isolated","invert":false},)";
  }
  json += R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":)";
  json += pre.split.empty() ? "true" : "false";
  json += "}]}";
}

// BOS before and EOS after a text, where the file asks for them.
void append_post_processor(const GgufVocabulary& vocabulary, const PreTokenizer& pre, std::string& json) {
  const bool bos = vocabulary.bos_id && vocabulary.add_bos.value_or(pre.adds_bos);
  const bool eos = vocabulary.eos_id && vocabulary.add_eos.value_or(false);
  json += R"("post_processor":)";
  if (!bos && !eos) {
    json += "null";
    return;
  }
  std::string before;
  std::string after;
  std::string tokens;
  const auto name = [&](std::int32_t id) {
    std::string quoted;
    append_json_string(vocabulary.tokens[static_cast<std::size_t>(id)], quoted);
    return quoted;
  };
  const auto add = [&](std::int32_t id) {
    if (!tokens.empty() && bos && vocabulary.bos_id == vocabulary.eos_id) return;  // one entry for both
    if (!tokens.empty()) tokens += ',';
    tokens +=
        name(id) + R"(:{"id":)" + name(id) + R"(,"ids":[)" + std::to_string(id) + R"(],"tokens":[)" + name(id) + "]}";
  };
  if (bos) {
    before = R"({"SpecialToken":{"id":)" + name(*vocabulary.bos_id) + R"(,"type_id":0}},)";
    add(*vocabulary.bos_id);
  }
  if (eos) {
    after = R"(,{"SpecialToken":{"id":)" + name(*vocabulary.eos_id) + R"(,"type_id":0}})";
    add(*vocabulary.eos_id);
  }
  json += R"({"type":"TemplateProcessing","single":[)" + before + R"({"Sequence":{"id":"A","type_id":0}})" + after;
  json += R"(],"pair":[{"Sequence":{"id":"A","type_id":0}},{"Sequence":{"id":"B","type_id":1}}],"special_tokens":{)";
  json += tokens + "}}";
}

Status append_model(const GgufVocabulary& vocabulary, const PreTokenizer& pre, std::string& json) {
  json += R"("model":{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,)";
  json += R"("end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,"ignore_merges":)";
  json += pre.ignore_merges ? "true" : "false";
  json += R"(,"vocab":{)";
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    if (i > 0) json += ',';
    append_json_string(vocabulary.tokens[i], json);
    json += ':' + std::to_string(i);
  }
  json += R"(},"merges":[)";
  for (std::size_t i = 0; i < vocabulary.merges.size(); ++i) {
    const std::string_view merge = vocabulary.merges[i];
    const std::size_t space = merge.find(' ');
    const bool two = space != std::string_view::npos && merge.find(' ', space + 1) == std::string_view::npos;
    if (!two || utf8_valid_prefix(merge) != merge.size()) {
      return corrupt(element("tokenizer.ggml.merges", i) + " is not two tokens with a space between them",
                     element("tokenizer.ggml.merges", i));
    }
    json += i > 0 ? ",[" : "[";
    append_json_string(merge.substr(0, space), json);
    json += ',';
    append_json_string(merge.substr(space + 1), json);
    json += ']';
  }
  json += "]}";
  return {};
}

}  // namespace

Expected<std::string> tokenizer_json_from_gguf(const GgufVocabulary& vocabulary) {
  const Expected<PreTokenizer> pre = find_pre_tokenizer(vocabulary);
  if (!pre) return pre.error();
  if (const Status good = check(vocabulary); !good) return good.error();

  std::string json = R"({"version":"1.0","truncation":null,"padding":null,)";
  append_added_tokens(vocabulary, json);
  json += ',';
  append_pre_tokenizer(*pre, json);
  json += ',';
  append_post_processor(vocabulary, *pre, json);
  json += R"(,"decoder":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true},)";
  if (const Status good = append_model(vocabulary, *pre, json); !good) return good.error();
  json += '}';
  return json;
}

}  // namespace sterling::text
