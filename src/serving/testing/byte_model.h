// Test only: a byte-level tokenizer without merges (token id = byte value, specials behind), a ChatML template, and a service
// over them, so that expected texts and ids follow by hand.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "serving/service.h"

namespace sterling::serving::testing {

inline constexpr std::int32_t kEndOfText = 256, kImStart = 257, kImEnd = 258, kByteVocab = 259;

// The printable stand-in of a byte in GPT-2's byte-level vocabularies, as a JSON escape.
inline std::string byte_symbol(int byte) {
  const auto printable = [](int b) {
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
  };
  int code = byte;
  if (!printable(byte)) {
    code = 256;
    for (int b = 0; b < byte; ++b) code += printable(b) ? 0 : 1;
  }
  return fmt::format("\\u{:04x}", code);
}

inline std::string byte_tokenizer_json() {
  std::string vocab;
  for (int b = 0; b < 256; ++b) vocab += fmt::format("{}\"{}\":{}", b == 0 ? "" : ",", byte_symbol(b), b);
  std::string added;
  const std::pair<const char*, int> specials[] = {
      {"<|endoftext|>", kEndOfText}, {"<|im_start|>", kImStart}, {"<|im_end|>", kImEnd}};
  for (const auto& [text, id] : specials) {
    added += fmt::format(
        R"({}{{"id":{},"content":"{}","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}})",
        added.empty() ? "" : ",", id, text);
  }
  const std::string byte_level =
      R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false})";
  return fmt::format(
      R"({{"version":"1.0","truncation":null,"padding":null,"added_tokens":[{}],"normalizer":null,"pre_tokenizer":{},)"
      R"("post_processor":null,"decoder":{},"model":{{"type":"BPE","dropout":null,"unk_token":null,)"
      R"("continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,)"
      R"("ignore_merges":false,"vocab":{{{}}},"merges":[]}}}})",
      added, byte_level, byte_level, vocab);
}

inline constexpr std::string_view kChatMl =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + "
    "'\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

inline ServiceOptions byte_model_options() {
  auto tokenizer = text::Tokenizer::from_json(byte_tokenizer_json());
  EXPECT_TRUE(tokenizer.ok()) << (tokenizer.ok() ? "" : tokenizer.error().message);
  auto chat_template = text::ChatTemplate::compile(kChatMl, {{"eos_token", "<|im_end|>"}});
  EXPECT_TRUE(chat_template.ok()) << (chat_template.ok() ? "" : chat_template.error().message);
  ServiceOptions options;
  options.model_names = {"byte-model", "alias/of it"};
  if (tokenizer.ok()) options.tokenizer = *tokenizer;
  if (chat_template.ok()) options.chat_template = *chat_template;
  options.eos_token_ids = {kImEnd, kEndOfText};
  options.vocab_size = kByteVocab;
  options.max_sequence_tokens = 4096;
  return options;
}

// The tokens of `text`, then <|im_end|> for ever.
inline std::int32_t scripted(std::string_view text, std::size_t at) {
  return at < text.size() ? static_cast<std::int32_t>(static_cast<unsigned char>(text[at])) : kImEnd;
}

}  // namespace sterling::serving::testing
