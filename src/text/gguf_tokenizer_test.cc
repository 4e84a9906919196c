// What a GGUF vocabulary may not be. (The good ones are in tokenizer_test.cc, against the oracle.)
#include "text/gguf_tokenizer.h"

#include <gtest/gtest.h>

#include "text/tokenizer.h"

namespace sterling::text {
namespace {

GgufVocabulary tiny() {
  GgufVocabulary v;
  v.model = "gpt2";
  v.pre = "gpt-2";
  v.tokens = {"<s>", "</s>", "a", "b", "Ġ", "ab"};
  v.token_types = {3, 3, 1, 1, 1, 1};
  v.merges = {"a b"};
  v.bos_id = 0;
  v.eos_id = 1;
  return v;
}

void expect_error(const GgufVocabulary& vocabulary, ErrorCode code, const std::string& message) {
  const auto made = Tokenizer::from_gguf(vocabulary);
  ASSERT_FALSE(made.ok()) << message;
  EXPECT_EQ(made.error().code, code);
  EXPECT_EQ(made.error().message.substr(0, message.size()), message);
}

TEST(GgufTokenizer, AddsBosAndEosAsTheFileSays) {
  const std::vector<std::int32_t> bare = {5, 4, 2};
  const auto ids = [](std::optional<bool> bos, std::optional<bool> eos, const std::string& pre) {
    GgufVocabulary v = tiny();
    v.pre = pre;
    v.add_bos = bos;
    v.add_eos = eos;
    return Tokenizer::from_gguf(v).value()->encode("ab a").value();
  };
  EXPECT_EQ(ids({}, {}, "gpt-2"), bare);
  EXPECT_EQ(ids(true, {}, "gpt-2"), (std::vector<std::int32_t>{0, 5, 4, 2}));
  EXPECT_EQ(ids(true, true, "gpt-2"), (std::vector<std::int32_t>{0, 5, 4, 2, 1}));
  EXPECT_EQ(ids({}, {}, "llama-bpe"), (std::vector<std::int32_t>{0, 5, 4, 2}));
  EXPECT_EQ(ids(false, {}, "llama-bpe"), bare);
  GgufVocabulary both = tiny();
  both.eos_id = both.bos_id;
  both.add_bos = both.add_eos = true;
  EXPECT_EQ(Tokenizer::from_gguf(both).value()->encode("a").value(), (std::vector<std::int32_t>{0, 2, 0}));
}

TEST(GgufTokenizer, MatchesUserDefinedTokensAndKeepsThemInTheText) {
  GgufVocabulary v = tiny();
  v.tokens.push_back("<think>");
  v.token_types.push_back(4);
  const auto tokenizer = Tokenizer::from_gguf(v).value();
  EXPECT_EQ(tokenizer->encode("a<think>b").value(), (std::vector<std::int32_t>{2, 6, 3}));
  EXPECT_EQ(tokenizer->decode(std::vector<std::int32_t>{0, 2, 6}, true).value(), "a<think>");
}

TEST(GgufTokenizer, NamesWhatItDoesNotKnow) {
  GgufVocabulary v = tiny();
  v.model = "llama";
  expect_error(v, ErrorCode::kUnsupported, "tokenizer.ggml.model is \"llama\"; accepted: \"gpt2\" (byte-level BPE)");
  v = tiny();
  v.pre = "mystery";
  expect_error(v, ErrorCode::kUnsupported,
               "tokenizer.ggml.pre is \"mystery\"; accepted: gpt-2, smollm, starcoder, refact, llama-bpe, llama3, "
               "llama-v3, qwen2, qwen35");
}

TEST(GgufTokenizer, RefusesBrokenArrays) {
  GgufVocabulary v = tiny();
  v.tokens.clear();
  v.token_types.clear();
  expect_error(v, ErrorCode::kCorrupt, "tokenizer.ggml.tokens is empty");
  v = tiny();
  v.token_types.pop_back();
  expect_error(v, ErrorCode::kCorrupt, "tokenizer.ggml.token_type has 5 entries for 6 tokens");
  v = tiny();
  v.tokens[3] = "\xff";
  expect_error(v, ErrorCode::kCorrupt, "tokenizer.ggml.tokens[3] is not UTF-8");
  v = tiny();
  v.tokens[4] = "a";
  expect_error(v, ErrorCode::kCorrupt, "tokenizer.ggml.tokens[4] repeats the token of id 2");
  v = tiny();
  v.merges.push_back("a b c");
  expect_error(v, ErrorCode::kCorrupt, "tokenizer.ggml.merges[1] is not two tokens with a space between them");
  v = tiny();
  v.merges.push_back("a\xff b");
  expect_error(v, ErrorCode::kCorrupt, "tokenizer.ggml.merges[1] is not two tokens with a space between them");
  v = tiny();
  v.merges.push_back("a zz");
  expect_error(v, ErrorCode::kCorrupt, "the tokenizer in the GGUF file cannot be used: ");
  v = tiny();
  v.eos_id = 6;
  expect_error(v, ErrorCode::kCorrupt, "tokenizer.ggml.eos_token_id is 6; accepted: 0 to 5");
  v = tiny();
  v.bos_id = -1;
  expect_error(v, ErrorCode::kCorrupt, "tokenizer.ggml.bos_token_id is -1; accepted: 0 to 5");
}

TEST(GgufTokenizer, QuotesWhatJsonQuotes) {
  GgufVocabulary v = tiny();
  v.tokens.push_back("\"\\\n\x01</b>");
  v.token_types.push_back(4);
  const auto tokenizer = Tokenizer::from_gguf(v).value();
  EXPECT_EQ(tokenizer->id_to_token(6), "\"\\\n\x01</b>");
  EXPECT_EQ(tokenizer->encode("a\"\\\n\x01</b>").value(), (std::vector<std::int32_t>{2, 6}));
}

}  // namespace
}  // namespace sterling::text
