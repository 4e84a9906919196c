#include "serving/service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serving/testing/byte_model.h"
#include "serving/testing/fake_engine.h"
#include "serving/testing/reader.h"

namespace sterling::serving {
namespace {

using testing::ask;
using testing::byte_model_options;
using ::testing::ElementsAre;
using testing::FakeEngine;
using ::testing::HasSubstr;
using testing::kImEnd;
using testing::scripted;

// An engine whose every answer is `text`, and a service on it.
struct Bench {
  explicit Bench(std::string text, ServiceOptions options = byte_model_options(), bool paused = false)
      : engine({.script = [text](const engine::TokenRequest&, std::size_t at) { return scripted(text, at); },
                .max_queue = 4,
                .paused = paused}),
        service(engine, std::move(options)) {}
  FakeEngine engine;
  Service service;
};

ChatRequest hello() {
  ChatRequest request;
  request.messages_json = R"([{"role":"user","content":"Hi"}])";
  return request;
}

CompletionRequest completion(std::string prompt) {
  CompletionRequest request;
  request.prompts = {Prompt(std::move(prompt))};
  return request;
}

TEST(Service, AnswersAChat) {
  Bench bench("Grüße! 👋");
  const auto answer = ask(bench.service, hello());
  ASSERT_FALSE(answer.error) << answer.error->message;
  EXPECT_THAT(answer.texts, ElementsAre("Grüße! 👋"));
  EXPECT_THAT(answer.finishes, ElementsAre(FinishReason::kStop));
  // <|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n in bytes and three special tokens.
  EXPECT_EQ(answer.usage.prompt_tokens, 1 + 5 + 2 + 1 + 1 + 1 + 10);
  EXPECT_EQ(answer.usage.completion_tokens, 13 + 1);  // bytes and the stop token
  const auto request = bench.engine.requests().at(0);
  EXPECT_EQ(request.prompt.front(), testing::kImStart);
  EXPECT_EQ(request.max_tokens, 4096 - answer.usage.prompt_tokens);
  EXPECT_THAT(request.stop_token_ids, ElementsAre(kImEnd, testing::kEndOfText));
}

TEST(Service, NeverEmitsHalfACharacter) {
  Bench bench("aé漢👋z");
  const auto answer = ask(bench.service, hello());
  std::vector<std::string> pieces;
  for (const auto& delta : answer.deltas) {
    if (!delta.text.empty()) pieces.push_back(delta.text);
  }
  EXPECT_THAT(pieces, ElementsAre("a", "é", "漢", "👋", "z"));
}

TEST(Service, StopStringsEndTheTextBeforeThem) {
  Bench bench("one two three four");
  ChatRequest request = hello();
  request.options.stop = {"thre", "xyz"};
  const auto answer = ask(bench.service, request);
  EXPECT_THAT(answer.texts, ElementsAre("one two "));
  EXPECT_THAT(answer.finishes, ElementsAre(FinishReason::kStop));
  EXPECT_EQ(std::get<std::string>(answer.deltas.back().stop_reason), "thre");
  EXPECT_EQ(answer.usage.completion_tokens, 12);
  EXPECT_TRUE(bench.engine.wait_cancelled(0));
}

TEST(Service, StopTokensOfTheRequestAreNamedAndNotShown) {
  Bench bench("abc!def");
  ChatRequest request = hello();
  request.options.stop_token_ids = {'!'};
  const auto answer = ask(bench.service, request);
  EXPECT_THAT(answer.texts, ElementsAre("abc"));
  EXPECT_EQ(std::get<std::int32_t>(answer.deltas.back().stop_reason), '!');
  request.options.include_stop_in_output = true;
  EXPECT_THAT(ask(bench.service, request).texts, ElementsAre("abc!"));
}

TEST(Service, IgnoreEosRunsToTheLimit) {
  Bench bench("ab");
  ChatRequest request = hello();
  request.options.ignore_eos = true;
  request.options.max_tokens = 5;
  const auto answer = ask(bench.service, request);
  EXPECT_THAT(answer.texts, ElementsAre("ab"));  // special tokens are skipped
  EXPECT_THAT(answer.finishes, ElementsAre(FinishReason::kLength));
  request.options.skip_special_tokens = false;
  EXPECT_THAT(ask(bench.service, request).texts, ElementsAre("ab<|im_end|><|im_end|><|im_end|>"));
}

TEST(Service, MinTokensPutsOffStopStrings) {
  Bench bench(".a.b.c");
  ChatRequest request = hello();
  request.options.stop = {"."};
  request.options.min_tokens = 4;
  EXPECT_THAT(ask(bench.service, request).texts, ElementsAre(".a.b"));
}

TEST(Service, SeveralChoicesDifferByStreamOnly) {
  FakeEngine engine({.script = [](const engine::TokenRequest& r, std::size_t at) {
    return scripted(std::string(3, static_cast<char>('a' + r.sampling.stream)), at);
  }});
  Service service(engine, byte_model_options());
  ChatRequest request = hello();
  request.options.n = 3;
  request.options.seed = 77;
  const auto answer = ask(service, request);
  EXPECT_THAT(answer.texts, ElementsAre("aaa", "bbb", "ccc"));
  EXPECT_EQ(answer.usage.completion_tokens, 12);
  EXPECT_EQ(answer.usage.prompt_tokens, 21);  // once
  for (const auto& r : engine.requests()) EXPECT_EQ(r.sampling.seed, 77U);
}

TEST(Service, LogprobsGiveBytesAndOffsets) {
  Bench bench("é!");
  ChatRequest request = hello();
  request.options.logprobs = 2;
  request.options.return_token_ids = true;
  const auto answer = ask(bench.service, request);
  ASSERT_EQ(answer.logprobs.at(0).size(), 4U);  // two halves, "!", the stop token
  EXPECT_EQ(answer.logprobs[0][0].token.bytes, "\xC3");
  EXPECT_EQ(answer.logprobs[0][1].text_offset, 0);
  EXPECT_EQ(answer.logprobs[0][2].text_offset, 1);
  EXPECT_EQ(answer.logprobs[0][2].top.size(), 2U);
  EXPECT_EQ(answer.logprobs[0][0].token.logprob, -0.1F);
  EXPECT_THAT(answer.token_ids.at(0), ElementsAre(0xC3, 0xA9, '!', kImEnd));
  EXPECT_EQ(answer.prompt_ids.at(0).size(), 21U);
}

TEST(Service, DefaultsFillWhatTheRequestLeavesOut) {
  ServiceOptions options = byte_model_options();
  options.defaults = {.temperature = 0.6F, .top_k = 20, .top_p = 0.95F};
  options.seed = 5;
  Bench bench("x", options);
  ask(bench.service, hello());
  ChatRequest request = hello();
  request.options.temperature = 0.0F;
  request.options.seed = 9;
  ask(bench.service, request);
  const auto requests = bench.engine.requests();
  EXPECT_EQ(requests[0].sampling.temperature, 0.6F);
  EXPECT_EQ(requests[0].sampling.top_k, 20);
  EXPECT_EQ(requests[0].sampling.top_p, 0.95F);
  EXPECT_EQ(requests[0].sampling.seed, 5U);
  EXPECT_EQ(requests[1].sampling.temperature, 0.0F);
  EXPECT_EQ(requests[1].sampling.seed, 9U);
}

TEST(Service, WithoutAnySeedRequestsDiffer) {
  Bench bench("x");
  ask(bench.service, hello());
  ask(bench.service, hello());
  EXPECT_NE(bench.engine.requests()[0].sampling.seed, bench.engine.requests()[1].sampling.seed);
}

TEST(Service, CompletionsTakeTextIdsAndLists) {
  Bench bench("out");
  CompletionRequest request;
  request.prompts = {Prompt(std::string("ab")), Prompt(std::vector<std::int32_t>{1, 2, 3})};
  request.prompt_is_list = true;
  request.options.n = 2;
  const auto answer = ask(bench.service, request);
  ASSERT_FALSE(answer.error);
  EXPECT_THAT(answer.texts, ElementsAre("out", "out", "out", "out"));
  EXPECT_EQ(answer.usage.prompt_tokens, 5);
  EXPECT_EQ(bench.engine.requests()[0].max_tokens, 16);
  EXPECT_EQ(bench.engine.requests()[3].sampling.stream, 1U);
}

TEST(Service, EchoPutsThePromptFirst) {
  Bench bench("out");
  CompletionRequest request = completion("né");
  request.echo = true;
  request.options.logprobs = 0;
  const auto answer = ask(bench.service, request);
  EXPECT_THAT(answer.texts, ElementsAre("néout"));
  const auto& entries = answer.logprobs.at(0);
  ASSERT_EQ(entries.size(), 3U + 4U);
  EXPECT_FALSE(entries[0].has_logprob);
  EXPECT_EQ(entries[1].token.logprob, -0.25F);
  EXPECT_EQ(entries[2].token.logprob, -0.5F);
  EXPECT_EQ(entries[3].text_offset, 2);
  EXPECT_EQ(answer.usage.completion_tokens, 4);

  request.options.max_tokens = 0;
  const auto scored = ask(bench.service, request);
  EXPECT_THAT(scored.texts, ElementsAre("né"));
  EXPECT_EQ(scored.logprobs.at(0).size(), 3U);
  EXPECT_EQ(scored.usage.completion_tokens, 0);
  EXPECT_THAT(scored.finishes, ElementsAre(FinishReason::kLength));
}

// --- refusals

TEST(Service, RefusesWhatDoesNotFitWithBothNumbers) {
  Bench bench("x");
  ChatRequest request = hello();
  request.options.max_tokens = 1'000'000'000;
  request.options.max_tokens_param = "max_completion_tokens";
  auto answer = ask(bench.service, request);
  ASSERT_TRUE(answer.error);
  EXPECT_EQ(answer.error->reason, kContextLength);
  EXPECT_EQ(answer.error->param, "max_completion_tokens");
  EXPECT_THAT(answer.error->message, HasSubstr("21 tokens"));
  EXPECT_THAT(answer.error->message, HasSubstr("1000000000"));
  EXPECT_THAT(answer.error->message, HasSubstr("4096"));

  answer = ask(bench.service, completion(std::string(5000, 'a')));
  ASSERT_TRUE(answer.error);
  EXPECT_EQ(answer.error->param, "prompt");
  EXPECT_THAT(answer.error->message, HasSubstr("5000 tokens"));
  EXPECT_TRUE(bench.engine.requests().empty());

  // A text that cannot fit however it is cut is not even tokenised: more than 4096 tokens of 13 bytes, normalised from three times that.
  answer = ask(bench.service, completion(std::string(4097 * 13 * 3, 'a')));
  ASSERT_TRUE(answer.error);
  EXPECT_EQ(answer.error->reason, kContextLength);
  EXPECT_THAT(answer.error->message, HasSubstr("more than 4097 tokens"));

  CompletionRequest fits = completion(std::string(4096 - 16, 'a'));
  fits.options.max_tokens = 16;
  EXPECT_FALSE(ask(bench.service, fits).error);
  fits.options.max_tokens = 17;
  EXPECT_TRUE(ask(bench.service, fits).error);
}

TEST(Service, RefusesIdsOutOfRangeEmptyPromptsAndUnknownModels) {
  Bench bench("x");
  CompletionRequest request;
  request.prompt_is_list = true;
  request.prompts = {Prompt(std::vector<std::int32_t>{1}), Prompt(std::vector<std::int32_t>{1, 999})};
  EXPECT_EQ(ask(bench.service, request).error->param, "prompt[1][1]");
  request.prompts[1] = std::vector<std::int32_t>{-1};
  EXPECT_EQ(ask(bench.service, request).error->param, "prompt[1][0]");
  EXPECT_EQ(ask(bench.service, completion("")).error->param, "prompt");

  ChatRequest chat = hello();
  chat.model = "gpt-4";
  const auto answer = ask(bench.service, chat);
  EXPECT_EQ(answer.error->code, ErrorCode::kNotFound);
  EXPECT_THAT(answer.error->message, HasSubstr("byte-model"));
  chat = hello();
  chat.options.stop_token_ids = {0, 259};
  EXPECT_EQ(ask(bench.service, chat).error->param, "stop_token_ids[1]");
  chat = hello();
  chat.options.logit_bias = {{300, 1.0F}};
  EXPECT_EQ(ask(bench.service, chat).error->param, "logit_bias.300");
  chat = hello();
  chat.options.n = 129;
  EXPECT_EQ(ask(bench.service, chat).error->param, "n");
  chat = hello();
  chat.options.max_tokens = 3;
  chat.options.min_tokens = 4;
  EXPECT_EQ(ask(bench.service, chat).error->param, "min_tokens");
}

TEST(Service, WorksOnIdsAloneWithoutATokenizer) {
  ServiceOptions options = byte_model_options();
  options.tokenizer = nullptr;
  options.chat_template = nullptr;
  Bench bench("x", options);
  EXPECT_EQ(ask(bench.service, hello()).error->code, ErrorCode::kUnsupported);
  EXPECT_EQ(ask(bench.service, completion("text")).error->code, ErrorCode::kUnsupported);
  CompletionRequest request;
  request.prompts = {Prompt(std::vector<std::int32_t>{1, 2})};
  request.options.return_token_ids = true;
  const auto answer = ask(bench.service, request);
  EXPECT_THAT(answer.token_ids, ElementsAre(ElementsAre('x', kImEnd)));
}

TEST(Service, AFullQueueRefusesEveryChoiceOfTheRequest) {
  Bench bench("x", byte_model_options(), /*paused=*/true);
  ChatRequest request = hello();
  request.options.n = 5;  // the queue holds four
  const auto answer = ask(bench.service, request);
  ASSERT_TRUE(answer.error);
  EXPECT_EQ(answer.error->code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(answer.error->reason, kQueueFull);
  EXPECT_TRUE(bench.engine.wait_cancelled(4));
}

TEST(Service, EngineFailureEndsTheAnswerWithAnError) {
  FakeEngine engine({.script = [](const engine::TokenRequest&, std::size_t at) { return at == 2 ? -1 : 'a'; }});
  Service service(engine, byte_model_options());
  const auto answer = ask(service, hello());
  ASSERT_TRUE(answer.error);
  EXPECT_EQ(answer.error->code, ErrorCode::kInternal);
  EXPECT_THAT(answer.texts, ElementsAre("aa"));
}

TEST(Service, DroppingTheGenerationCancelsIt) {
  FakeEngine engine(
      {.script = [](const engine::TokenRequest&, std::size_t) { return 'a'; }, .step = std::chrono::microseconds(200)});
  Service service(engine, byte_model_options());
  testing::Signal signal;
  auto generation = service.chat(hello(), signal.wake());
  while (!generation->take().started) ASSERT_TRUE(signal.wait());
  generation.reset();
  EXPECT_TRUE(engine.wait_cancelled(1));
}

TEST(Service, AReaderThatStaysAwayLosesItsAnswerAndNothingElse) {
  ServiceOptions options = byte_model_options();
  options.max_unread_events = 10;
  Bench bench(std::string(200, 'a'), options);
  testing::Signal signal;
  const auto generation = bench.service.chat(hello(), signal.wake());
  while (!generation->overrun()) ASSERT_TRUE(signal.wait());
  Update last;
  do {
    last = generation->take();
  } while (!last.error && !last.finished);
  ASSERT_TRUE(last.error);
  EXPECT_EQ(last.error->reason, kSlowClient);
}

TEST(Service, TokenizesAndBack) {
  Bench bench("x");
  TokenizeRequest request;
  request.text = "hé<|im_end|>";
  request.return_token_strings = true;
  auto tokens = bench.service.tokenize(request);
  ASSERT_TRUE(tokens.ok());
  EXPECT_THAT(tokens->tokens, ElementsAre('h', 0xC3, 0xA9, kImEnd));
  EXPECT_THAT(tokens->token_strings, ElementsAre("h", "\xC3", "\xA9", "<|im_end|>"));
  auto text = bench.service.detokenize({.model = {}, .tokens = tokens->tokens});
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(*text, "hé<|im_end|>");
  EXPECT_FALSE(bench.service.detokenize({.model = {}, .tokens = {259}}).ok());
}

TEST(Service, KnowsWhetherTheTemplateReadsParts) {
  ServiceOptions options = byte_model_options();
  EXPECT_FALSE(Bench("x", options).service.template_reads_parts());
  options.chat_template = *text::ChatTemplate::compile(
      "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{{ p.text }}"
      "{% endfor %}{% endif %}{% endfor %}",
      {});
  EXPECT_TRUE(Bench("x", options).service.template_reads_parts());
}

}  // namespace
}  // namespace sterling::serving
