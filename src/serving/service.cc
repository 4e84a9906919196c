#include "serving/service.h"

#include <algorithm>
#include <atomic>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "serving/generation.h"
#include "serving/prompts.h"
#include "serving/worker_pool.h"

namespace sterling::serving {
namespace {

// OpenAI's default for plain completions; a base model has no reason to stop by itself.
constexpr std::int32_t kDefaultCompletionTokens = 16;

std::uint64_t splitmix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

std::uint64_t random_start() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32U) | device();
}

engine::SamplingParams sampling_of(const GenerationOptions& o, const GenerationDefaults& d) {
  engine::SamplingParams s;
  s.temperature = o.temperature.value_or(d.temperature);
  s.top_k = o.top_k.value_or(d.top_k);
  s.top_p = o.top_p.value_or(d.top_p);
  s.min_p = o.min_p.value_or(d.min_p);
  s.repetition_penalty = o.repetition_penalty.value_or(d.repetition_penalty);
  s.frequency_penalty = o.frequency_penalty.value_or(0.0F);
  s.presence_penalty = o.presence_penalty.value_or(0.0F);
  s.logit_bias = o.logit_bias;
  return s;
}

}  // namespace

struct Service::Impl {
  Impl(engine::Engine& e, ServiceOptions o)
      : engine(e),
        options(std::move(o)),
        reads_parts(options.chat_template && serving::template_reads_parts(*options.chat_template)),
        longest_token(options.tokenizer ? longest_token_bytes(*options.tokenizer) : 0),
        next_seed(random_start()),
        workers(options.threads) {}

  std::optional<RequestError> check(const std::string& model, const GenerationOptions& o, std::size_t prompts) const;
  void plan_choices(const GenerationOptions& o, TokenIds prompt, std::int32_t budget, const ChoiceSettings& settings,
                    GenerationPlan& plan, std::uint64_t seed) const;
  Outcome<GenerationPlan> plan_chat(const ChatRequest& request);
  Outcome<GenerationPlan> plan_completion(const CompletionRequest& request);
  std::uint64_t seed_of(const GenerationOptions& o) {
    if (o.seed) return *o.seed;
    if (options.seed) return *options.seed;
    return splitmix(next_seed.fetch_add(1));
  }
  bool has_model(std::string_view name) const {
    return name.empty() ||
           std::find(options.model_names.begin(), options.model_names.end(), name) != options.model_names.end();
  }
  RequestError unknown_model(const std::string& name) const {
    return {
        ErrorCode::kNotFound,
        fmt::format("the model \"{}\" is not served here; accepted: {}", name, fmt::join(options.model_names, ", ")),
        "model", kModelNotFound};
  }

  engine::Engine& engine;
  const ServiceOptions options;
  const bool reads_parts;
  const std::size_t longest_token;
  std::atomic<std::uint64_t> next_seed;
  WorkerPool workers;  // last: its jobs use the rest
};

std::optional<RequestError> Service::Impl::check(const std::string& model, const GenerationOptions& o,
                                                 std::size_t prompts) const {
  if (!has_model(model)) return unknown_model(model);
  if (static_cast<std::int64_t>(prompts) * o.n > options.max_choices) {
    return RequestError{ErrorCode::kInvalidArgument,
                        fmt::format("{} prompts with n = {} ask for {} choices; accepted: at most {}", prompts, o.n,
                                    static_cast<std::int64_t>(prompts) * o.n, options.max_choices),
                        prompts > 1 ? "prompt" : "n", kInvalidValue};
  }
  if (auto error = check_token_ids(options, o.stop_token_ids, "stop_token_ids")) return error;
  for (const auto& [id, bias] : o.logit_bias) {
    if (id >= 0 && id < options.vocab_size) continue;
    return RequestError{ErrorCode::kInvalidArgument,
                        fmt::format("logit_bias has the token id {}; accepted: 0 to {}", id, options.vocab_size - 1),
                        fmt::format("logit_bias.{}", id), kInvalidValue};
  }
  return std::nullopt;
}

void Service::Impl::plan_choices(const GenerationOptions& o, TokenIds prompt, std::int32_t budget,
                                 const ChoiceSettings& settings, GenerationPlan& plan, std::uint64_t seed) const {
  plan.prompt_tokens += static_cast<std::int64_t>(prompt.size());
  if (o.return_token_ids) plan.prompt_ids.push_back(prompt);
  for (std::int32_t i = 0; i < o.n; ++i) {
    ChoicePlan choice;
    choice.settings = settings;
    choice.settings.index = static_cast<std::int32_t>(plan.choices.size());
    choice.settings.stop = o.stop;
    choice.settings.stop_token_ids = o.stop_token_ids;
    if (!o.ignore_eos) choice.settings.eos_token_ids = options.eos_token_ids;
    choice.settings.include_stop_in_output = o.include_stop_in_output;
    choice.settings.skip_special_tokens = o.skip_special_tokens;
    choice.settings.logprobs = o.logprobs.has_value();
    choice.settings.keep_token_ids = o.return_token_ids;
    choice.settings.min_tokens = o.min_tokens;
    choice.settings.drop_generated = o.max_tokens == 0;

    engine::TokenRequest& request = choice.request;
    request.prompt = i + 1 == o.n ? std::move(prompt) : prompt;
    request.sampling = sampling_of(o, options.defaults);
    request.sampling.seed = seed;
    request.sampling.stream =
        static_cast<std::uint64_t>(i);  // the same answer whether the prompt came alone or in a list
    request.max_tokens = budget;
    request.min_tokens = o.min_tokens;
    request.stop_token_ids = o.stop_token_ids;
    for (std::int32_t id : choice.settings.eos_token_ids) {
      if (std::find(request.stop_token_ids.begin(), request.stop_token_ids.end(), id) == request.stop_token_ids.end()) {
        request.stop_token_ids.push_back(id);
      }
    }
    request.top_logprobs = o.logprobs.value_or(-1);
    request.prompt_logprobs = settings.echo && o.logprobs.has_value();
    plan.choices.push_back(std::move(choice));
  }
}

Outcome<GenerationPlan> Service::Impl::plan_chat(const ChatRequest& request) {
  if (auto error = check(request.model, request.options, 1)) return std::move(*error);
  Outcome<TokenIds> prompt = chat_prompt(options, request.messages_json, request.template_kwargs_json,
                                         request.add_generation_prompt, longest_token);
  if (!prompt) return prompt.error();
  const Outcome<std::int32_t> budget =
      answer_budget(options, request.options, static_cast<std::int64_t>(prompt->size()), "messages", std::nullopt);
  if (!budget) return budget.error();
  GenerationPlan plan;
  plan.tokenizer = options.tokenizer;
  plan.choices_per_prompt = request.options.n;
  plan_choices(request.options, std::move(*prompt), *budget, {}, plan, seed_of(request.options));
  return plan;
}

Outcome<GenerationPlan> Service::Impl::plan_completion(const CompletionRequest& request) {
  if (auto error = check(request.model, request.options, request.prompts.size())) return std::move(*error);
  GenerationPlan plan;
  plan.tokenizer = options.tokenizer;
  plan.choices_per_prompt = request.options.n;
  const std::uint64_t seed = seed_of(request.options);
  for (std::size_t i = 0; i < request.prompts.size(); ++i) {
    const std::string param = request.prompt_is_list ? fmt::format("prompt[{}]", i) : "prompt";
    ChoiceSettings settings;
    settings.echo = request.echo;
    TokenIds prompt;
    if (const auto* text = std::get_if<std::string>(&request.prompts[i])) {
      if (auto error = check_text_length(options, longest_token, text->size(), param)) return std::move(*error);
      Outcome<TokenIds> ids = text_prompt(options, *text, request.add_special_tokens, param);
      if (!ids) return ids.error();
      prompt = std::move(*ids);
      if (request.echo) settings.echo_text = *text;
    } else {
      prompt = std::get<TokenIds>(request.prompts[i]);
      if (auto error = check_token_ids(options, prompt, param)) return std::move(*error);
      if (request.echo && options.tokenizer) {
        Expected<std::string> decoded = options.tokenizer->decode(prompt, request.options.skip_special_tokens);
        if (!decoded) return RequestError{decoded.error().code, decoded.error().message, param, {}};
        settings.echo_text = std::move(*decoded);
      }
    }
    const Outcome<std::int32_t> budget = answer_budget(
        options, request.options, static_cast<std::int64_t>(prompt.size()), param, kDefaultCompletionTokens);
    if (!budget) return budget.error();
    if (request.echo) settings.echo_ids = prompt;
    plan_choices(request.options, std::move(prompt), *budget, settings, plan, seed);
  }
  return plan;
}

Service::Service(engine::Engine& engine, ServiceOptions options) {
  STERLING_CHECK(!options.model_names.empty());
  impl_ = std::make_unique<Impl>(engine, std::move(options));
}

Service::~Service() = default;

std::shared_ptr<Generation> Service::chat(ChatRequest request, Wake wake) {
  auto state = std::make_shared<GenerationState>(impl_->engine, std::move(wake), impl_->options.max_unread_events);
  run_in_background([impl = impl_.get(), state, request = std::move(request)] {
    if (state->cancelled()) return;
    Outcome<GenerationPlan> plan = impl->plan_chat(request);
    if (plan) {
      state->start(std::move(*plan));
    } else {
      state->fail(plan.error());
    }
  });
  return std::make_shared<Generation>(std::move(state));
}

std::shared_ptr<Generation> Service::complete(CompletionRequest request, Wake wake) {
  auto state = std::make_shared<GenerationState>(impl_->engine, std::move(wake), impl_->options.max_unread_events);
  run_in_background([impl = impl_.get(), state, request = std::move(request)] {
    if (state->cancelled()) return;
    Outcome<GenerationPlan> plan = impl->plan_completion(request);
    if (plan) {
      state->start(std::move(*plan));
    } else {
      state->fail(plan.error());
    }
  });
  return std::make_shared<Generation>(std::move(state));
}

Outcome<TokenizeResult> Service::tokenize(const TokenizeRequest& request) const {
  if (!impl_->has_model(request.model)) return impl_->unknown_model(request.model);
  Outcome<TokenIds> ids =
      request.text ? text_prompt(impl_->options, *request.text, request.add_special_tokens, request.text_param)
                   : chat_prompt(impl_->options, request.messages_json, request.template_kwargs_json,
                                 request.add_generation_prompt, /*longest_token=*/0);
  if (!ids) return ids.error();
  TokenizeResult out;
  out.tokens = std::move(*ids);
  if (request.return_token_strings) {
    for (std::int32_t id : out.tokens) out.token_strings.emplace_back(impl_->options.tokenizer->token_bytes(id));
  }
  return out;
}

Outcome<std::string> Service::detokenize(const DetokenizeRequest& request) const {
  if (!impl_->has_model(request.model)) return impl_->unknown_model(request.model);
  if (auto error = check_token_ids(impl_->options, request.tokens, "tokens")) return std::move(*error);
  if (!impl_->options.tokenizer) {
    return RequestError{ErrorCode::kUnsupported, "the served checkpoint has no tokenizer", "tokens",
                        kUnsupportedParameter};
  }
  Expected<std::string> text = impl_->options.tokenizer->decode(request.tokens);
  if (!text) return RequestError{text.error().code, text.error().message, "tokens", {}};
  return std::move(*text);
}

void Service::run_in_background(std::function<void()> job) {
  impl_->workers.post(std::move(job));
}
bool Service::has_model(std::string_view name) const {
  return impl_->has_model(name);
}
const std::vector<std::string>& Service::model_names() const {
  return impl_->options.model_names;
}
const GenerationDefaults& Service::defaults() const {
  return impl_->options.defaults;
}
std::int32_t Service::max_sequence_tokens() const {
  return impl_->options.max_sequence_tokens;
}
bool Service::template_reads_parts() const {
  return impl_->reads_parts;
}
engine::EngineStats Service::engine_stats() const {
  return impl_->engine.stats();
}
bool Service::engine_idle() const {
  return impl_->engine.idle();
}
void Service::drain_engine() {
  impl_->engine.drain();
}

}  // namespace sterling::serving
