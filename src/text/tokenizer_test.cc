// Ids and texts against what the Python package `tokenizers` says (tests/text/, made by tools/text/make_fixtures.py).
#include "text/tokenizer.h"

#include <algorithm>
#include <functional>
#include <thread>

#include <gtest/gtest.h>

#include "base/utf8.h"
#include "text/test_fixtures.h"

namespace sterling::text {
namespace {

using testing::gguf_of;
using testing::read_fixture;
using testing::read_ids;
using testing::read_json;
using testing::read_strings;
using testing::to_ids;
using testing::to_string;

using TokenizerPtr = std::shared_ptr<const Tokenizer>;

TokenizerPtr made(Expected<TokenizerPtr> tokenizer) {
  EXPECT_TRUE(tokenizer.ok()) << (tokenizer.ok() ? "" : tokenizer.error().message);
  return tokenizer.ok() ? *tokenizer : nullptr;
}

// All texts of IncrementalDecoder for `ids`; every one of them must end on a character boundary.
std::string stream(const TokenizerPtr& tokenizer, const std::vector<std::int32_t>& ids, bool skip_special) {
  IncrementalDecoder decoder(tokenizer, skip_special);
  std::string out;
  for (const std::int32_t id : ids) {
    const std::string piece = decoder.push(id);
    EXPECT_EQ(utf8_valid_prefix(piece), piece.size());
    out += piece;
  }
  return out + decoder.flush();
}

const boost::json::value* find(const boost::json::value& map, std::size_t index) {
  return map.as_object().if_contains(std::to_string(index));
}

// Everything the oracle says about one tokenizer, over all strings and over ids that come from no string.
void expect_parity(const TokenizerPtr& tokenizer, const std::string& name) {
  ASSERT_NE(tokenizer, nullptr);
  const std::vector<std::string> strings = read_strings();
  const auto ids = read_ids(name + ".ids.bin");
  const boost::json::value expected = read_json(name + ".expected.json");
  ASSERT_GE(strings.size(), 2000u);
  ASSERT_EQ(ids.size(), strings.size());
  EncodeOptions plain;
  plain.add_special_tokens = false;
  for (std::size_t i = 0; i < strings.size(); ++i) {
    SCOPED_TRACE(name + " string " + std::to_string(i));
    const auto encoded = tokenizer->encode(strings[i], plain);
    ASSERT_TRUE(encoded.ok()) << encoded.error().message;
    ASSERT_EQ(*encoded, ids[i]);

    EncodeOptions literal = plain;
    literal.parse_special = false;
    const auto* literal_ids = find(expected.at("literal"), i);
    ASSERT_EQ(tokenizer->encode(strings[i], literal).value(), literal_ids ? to_ids(*literal_ids) : ids[i]);

    if (const auto* with = find(expected.at("with_special"), i)) {
      ASSERT_EQ(tokenizer->encode(strings[i]).value(), to_ids(*with));
    }
    const auto* decoded = find(expected.at("decoded"), i);
    const std::string text = decoded ? to_string(*decoded) : strings[i];
    const auto* skipped = find(expected.at("skipped"), i);
    const std::string skipped_text = skipped ? to_string(*skipped) : text;
    ASSERT_EQ(tokenizer->decode(ids[i]).value(), text);
    ASSERT_EQ(tokenizer->decode(ids[i], true).value(), skipped_text);
    ASSERT_EQ(stream(tokenizer, ids[i], false), text);
    ASSERT_EQ(stream(tokenizer, ids[i], true), skipped_text);
  }
  for (const auto& entry : expected.at("random").as_array()) {
    const std::vector<std::int32_t> picked = to_ids(entry.at(0));
    ASSERT_EQ(tokenizer->decode(picked).value(), to_string(entry.at(1)));
    ASSERT_EQ(tokenizer->decode(picked, true).value(), to_string(entry.at(2)));
    ASSERT_EQ(stream(tokenizer, picked, false), to_string(entry.at(1)));
    ASSERT_EQ(stream(tokenizer, picked, true), to_string(entry.at(2)));
  }
}

TEST(TokenizerParity, SmolLM2FromItsGgufArrays) {
  expect_parity(made(Tokenizer::from_gguf(testing::smollm2_vocabulary())), "smollm2");
}

TEST(TokenizerParity, SmallQwenStyle) {
  expect_parity(made(Tokenizer::from_json(read_fixture("small_qwen.tokenizer.json"))), "small_qwen");
}

TEST(TokenizerParity, SmallByteFallback) {
  expect_parity(made(Tokenizer::from_json(read_fixture("small_fallback.tokenizer.json"))), "small_fallback");
}

TEST(TokenizerParity, Qwen35) {
  const std::filesystem::path path = std::filesystem::path(STERLING_SOURCE_DIR) / ".." / "shared" / "data" /
                                     "tokenizers" / "qwen3_5" / "tokenizer.json";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "the Qwen3.5 vocabulary is not part of the project: no " << path;
  expect_parity(made(Tokenizer::from_json(testing::read_file(path))), "qwen3_5");
}

TEST(TokenizerParity, EveryGgufPreTokeniser) {
  const boost::json::value cases = read_json("gguf_pre.json");
  const std::vector<std::string> strings = read_strings();
  const std::string json = read_fixture("small_qwen.tokenizer.json");
  for (const auto& pre_name : cases.at("pre").as_array()) {
    const std::string pre = to_string(pre_name);
    SCOPED_TRACE(pre);
    GgufVocabulary vocabulary = gguf_of(json, pre);
    const auto start = std::find(vocabulary.tokens.begin(), vocabulary.tokens.end(), "<|im_start|>");
    vocabulary.bos_id = static_cast<std::int32_t>(start - vocabulary.tokens.begin());
    const TokenizerPtr tokenizer = made(Tokenizer::from_gguf(vocabulary));
    ASSERT_NE(tokenizer, nullptr);
    const auto ids = read_ids("gguf_pre." + pre + ".ids.bin");
    const auto chosen = to_ids(cases.at("strings"));
    ASSERT_EQ(ids.size(), chosen.size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      ASSERT_EQ(tokenizer->encode(strings[static_cast<std::size_t>(chosen[i])]).value(), ids[i])
          << "string " << chosen[i];
    }
  }
}

// Older files write a merge as one string with a space; newer ones as a pair.
TEST(Tokenizer, TakesBothMergeEncodings) {
  const std::string pairs = read_fixture("small_qwen.tokenizer.json");
  boost::json::value json = boost::json::parse(pairs);
  for (auto& merge : json.at("model").at("merges").as_array()) {
    merge = boost::json::string(to_string(merge.at(0)) + " " + to_string(merge.at(1)));
  }
  const TokenizerPtr a = made(Tokenizer::from_json(pairs));
  const TokenizerPtr b = made(Tokenizer::from_json(boost::json::serialize(json)));
  for (const std::string& text : read_strings()) ASSERT_EQ(a->encode(text).value(), b->encode(text).value());
}

TEST(Tokenizer, DescribesItsTokens) {
  const TokenizerPtr tokenizer = made(Tokenizer::from_gguf(testing::smollm2_vocabulary()));
  EXPECT_EQ(tokenizer->vocab_size(), 49152u);
  EXPECT_EQ(tokenizer->token_to_id("<|im_end|>"), 2);
  EXPECT_EQ(tokenizer->id_to_token(2), "<|im_end|>");
  EXPECT_TRUE(tokenizer->is_special(2));
  EXPECT_EQ(tokenizer->token_bytes(2), "<|im_end|>");
  const std::int32_t the = tokenizer->token_to_id("Ġthe").value();
  EXPECT_FALSE(tokenizer->is_special(the));
  EXPECT_EQ(tokenizer->token_bytes(the), " the");
  EXPECT_EQ(tokenizer->token_to_id("no such token"), std::nullopt);
  for (const std::int32_t id : {-1, 49152, 2147483647}) {
    EXPECT_FALSE(tokenizer->has_token(id));
    EXPECT_FALSE(tokenizer->is_special(id));
    EXPECT_EQ(tokenizer->id_to_token(id), std::nullopt);
    EXPECT_EQ(tokenizer->token_bytes(id), "");
  }
  // The bytes of a text's tokens are the bytes of the text.
  const std::string text = "naïve 日本 👩‍👩‍👧\n\tend";
  std::string bytes;
  const std::vector<std::int32_t> ids = tokenizer->encode(text).value();
  for (const std::int32_t id : ids) bytes += tokenizer->token_bytes(id);
  EXPECT_EQ(bytes, text);
}

// A token that the file adds with special=false is matched even where special tokens are ordinary text.
TEST(Tokenizer, ParseSpecialConcernsSpecialTokensAlone) {
  const TokenizerPtr tokenizer = made(Tokenizer::from_json(read_fixture("small_qwen.tokenizer.json")));
  EncodeOptions literal;
  literal.parse_special = false;
  const std::int32_t think = tokenizer->token_to_id("<think>").value();
  const std::int32_t end = tokenizer->token_to_id("<|im_end|>").value();
  EXPECT_FALSE(tokenizer->is_special(think));
  EXPECT_EQ(tokenizer->encode("<think>", literal).value(), std::vector<std::int32_t>{think});
  EXPECT_EQ(tokenizer->encode("<|im_end|>").value(), std::vector<std::int32_t>{end});
  const auto as_text = tokenizer->encode("<|im_end|>", literal).value();
  EXPECT_EQ(std::count(as_text.begin(), as_text.end(), end), 0);
  EXPECT_EQ(tokenizer->decode(as_text).value(), "<|im_end|>");
}

// A file's truncation would cut prompts without a word.
TEST(Tokenizer, IgnoresTruncationAndPadding) {
  boost::json::value json = boost::json::parse(read_fixture("small_qwen.tokenizer.json"));
  json.as_object()["truncation"] = {
      {"direction", "Right"}, {"max_length", 3}, {"strategy", "LongestFirst"}, {"stride", 0}};
  json.as_object()["padding"] = {{"strategy", {{"Fixed", 9000}}},
                                 {"direction", "Right"},
                                 {"pad_to_multiple_of", nullptr},
                                 {"pad_id", 0},
                                 {"pad_type_id", 0},
                                 {"pad_token", "!"}};
  const TokenizerPtr cut = made(Tokenizer::from_json(boost::json::serialize(json)));
  const TokenizerPtr whole = made(Tokenizer::from_json(read_fixture("small_qwen.tokenizer.json")));
  const std::string text = "one two three four five six seven";
  EXPECT_EQ(cut->encode(text).value(), whole->encode(text).value());
}

TEST(Tokenizer, RefusesTextThatIsNotUtf8) {
  const TokenizerPtr tokenizer = made(Tokenizer::from_json(read_fixture("small_qwen.tokenizer.json")));
  const auto encoded = tokenizer->encode("ab\xff");
  ASSERT_FALSE(encoded.ok());
  EXPECT_EQ(encoded.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(encoded.error().message, "text is not UTF-8: first bad byte at offset 2");
}

TEST(Tokenizer, RefusesFilesThatBreakTheFormat) {
  const std::string good = read_fixture("small_qwen.tokenizer.json");
  boost::json::value bad_merge = boost::json::parse(good);
  bad_merge.at("model").at("merges").as_array().push_back(boost::json::array{"no", "such"});
  boost::json::value huge_id = boost::json::parse(good);
  huge_id.at("model").at("vocab").as_object()["zzzz"] = 4294967295u;
  const std::vector<std::string> bad = {"",
                                        "{",
                                        "null",
                                        "[]",
                                        "{}",
                                        "\xff",
                                        R"({"model":{"type":"BPE"}})",
                                        R"({"model":7})",
                                        good.substr(0, good.size() / 2),
                                        std::string(100000, '['),
                                        boost::json::serialize(bad_merge),
                                        boost::json::serialize(huge_id)};
  for (const std::string& json : bad) {
    const auto tokenizer = Tokenizer::from_json(json);
    ASSERT_FALSE(tokenizer.ok()) << json.substr(0, 80);
    EXPECT_EQ(tokenizer.error().code, ErrorCode::kCorrupt) << tokenizer.error().message;
    EXPECT_FALSE(tokenizer.error().message.empty());
  }
}

TEST(Tokenizer, RefusesDecodersItCannotStream) {
  boost::json::value json = boost::json::parse(read_fixture("small_qwen.tokenizer.json"));
  const boost::json::value decoders[] = {
      nullptr,
      {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}},
      {{"type", "Sequence"}, {"decoders", boost::json::array{{{"type", "Fuse"}}, {{"type", "ByteFallback"}}}}}};
  for (const boost::json::value& decoder : decoders) {
    json.as_object()["decoder"] = decoder;
    const auto tokenizer = Tokenizer::from_json(boost::json::serialize(json));
    ASSERT_FALSE(tokenizer.ok());
    EXPECT_EQ(tokenizer.error().code, ErrorCode::kUnsupported) << tokenizer.error().message;
    EXPECT_NE(tokenizer.error().message.find("accepted: ByteLevel"), std::string::npos) << tokenizer.error().message;
  }
}

TEST(IncrementalDecoder, HoldsHalfCharactersBack) {
  const TokenizerPtr tokenizer = made(Tokenizer::from_json(read_fixture("small_qwen.tokenizer.json")));
  // U+10FFFD is in no merge that spans it whole: several tokens, each a part of the character.
  const auto ids = tokenizer->encode("\xF4\x8F\xBF\xBD").value();
  ASSERT_GT(ids.size(), 1u);
  IncrementalDecoder decoder(tokenizer);
  for (std::size_t i = 0; i + 1 < ids.size(); ++i) EXPECT_EQ(decoder.push(ids[i]), "");
  EXPECT_EQ(decoder.push(ids.back()), "\xF4\x8F\xBF\xBD");
  EXPECT_EQ(decoder.flush(), "");
  // Cut short, the same character is one replacement character, and the decoder starts afresh.
  decoder.push(ids[0]);
  EXPECT_EQ(decoder.flush(), std::string(kReplacement));
  EXPECT_EQ(decoder.push(tokenizer->token_to_id("a").value()), "a");
}

TEST(IncrementalDecoder, IgnoresIdsWithoutAToken) {
  const TokenizerPtr tokenizer = made(Tokenizer::from_json(read_fixture("small_qwen.tokenizer.json")));
  IncrementalDecoder decoder(tokenizer);
  for (const std::int32_t id : {-1, 1 << 30}) EXPECT_EQ(decoder.push(id), "");
  EXPECT_EQ(decoder.flush(), "");
  EXPECT_EQ(tokenizer->decode(std::vector<std::int32_t>{-5, 1 << 30}).value(), "");
}

TEST(Tokenizer, ServesFourThreadsAtOnce) {
  const TokenizerPtr tokenizer = made(Tokenizer::from_json(read_fixture("small_qwen.tokenizer.json")));
  const std::vector<std::string> strings = read_strings();
  const auto ids = read_ids("small_qwen.ids.bin");
  std::vector<std::size_t> wrong(4, 0);
  const std::function<void(std::size_t)> work = [&](std::size_t thread) {
    EncodeOptions plain;
    plain.add_special_tokens = false;
    for (std::size_t n = 0; n < 400; ++n) {
      const std::size_t i = (n * 7 + thread) % strings.size();
      if (tokenizer->encode(strings[i], plain).value() != ids[i]) ++wrong[thread];
      IncrementalDecoder decoder(tokenizer);
      std::string text;
      for (const std::int32_t id : ids[i]) text += decoder.push(id);
      if (text + decoder.flush() != tokenizer->decode(ids[i]).value()) ++wrong[thread];
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t) threads.emplace_back(work, t);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<std::size_t>(4, 0));
}

}  // namespace
}  // namespace sterling::text
