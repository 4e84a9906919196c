#include "cli/audit_servers.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "cli/logprob_client.h"
#include "cli/prompt_file.h"
#include "cli/version.h"

namespace sterling::cli {
namespace {

namespace json = boost::json;

// Depths beyond any model's limit share the last bin.
constexpr std::int64_t kDeepest = std::int64_t{1} << 22;

// The end of a prefix of text that cuts no character, and no word where one ends nearby: half a word makes strange predictions.
std::size_t cut_at(const std::string& text, std::size_t at) {
  constexpr std::size_t kNearby = 64;
  if (at >= text.size()) return text.size();
  const std::size_t space = text.find_last_of(" \n\t", at);
  if (space != std::string::npos && space > 0 && at - space < kNearby) return space;
  while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U) ++at;
  return at;
}

// Messages up to and with a turn of the user or a tool: what a server answers to.
std::vector<std::size_t> turns(const json::array& messages) {
  std::vector<std::size_t> ends;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const json::value* role = messages[i].is_object() ? messages[i].get_object().if_contains("role") : nullptr;
    if (role != nullptr && role->is_string() && (role->get_string() == "user" || role->get_string() == "tool")) {
      ends.push_back(i + 1);
    }
  }
  return ends;
}

json::array first_of(const json::array& list, std::size_t count) {
  return json::array(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(count));
}

// `wanted` places from 1 to `size`, evenly, the last at the end.
std::vector<std::size_t> places(std::size_t size, std::size_t wanted) {
  std::vector<std::size_t> out;
  for (std::size_t i = 1; i <= wanted; ++i) {
    const std::size_t at = std::max<std::size_t>(1, size * i / wanted);
    if (out.empty() || out.back() < at) out.push_back(at);
  }
  return out;
}

std::vector<LogprobRequest> requests_of(const RawPrompt& prompt, const AuditServersOptions& options) {
  const auto wanted = static_cast<std::size_t>(options.samples);
  std::vector<LogprobRequest> out;
  if (prompt.text) {
    std::size_t last = 0;
    for (const std::size_t place : places(prompt.text->size(), wanted)) {
      const std::size_t end = cut_at(*prompt.text, place);
      if (end > last) out.push_back({false, json::value(prompt.text->substr(0, end)), options.steps, options.top});
      last = std::max(last, end);
    }
  } else if (!prompt.messages.empty()) {
    const std::vector<std::size_t> ends = turns(prompt.messages);
    for (const std::size_t place : places(ends.size(), std::min(wanted, ends.size()))) {
      out.push_back({true, first_of(prompt.messages, ends[place - 1]), options.steps, options.top});
    }
  } else {
    for (const std::size_t place : places(prompt.tokens.size(), wanted)) {
      out.push_back({false, first_of(prompt.tokens, place), options.steps, options.top});
    }
  }
  return out;
}

std::string described(const LogprobClient& client) {
  if (!client.manifest()) return fmt::format("{} ({})", client.name(), client.model());
  return fmt::format("{} ({}, precision manifest {})", client.name(), client.model(), *client.manifest());
}

Expected<LogprobClient> connect(const std::string& url, const AuditServersOptions& options) {
  auto parsed = parse_server_url(url);
  if (!parsed) return parsed.error();
  LogprobClient client(url, *parsed, options.api_key, options.stopped);
  if (Status status = client.connect(options.model); !status) return status.error();
  return client;
}

}  // namespace

Expected<lab::AuditReport> audit_servers(const AuditServersOptions& options) {
  auto raw = read_raw_prompts(options.prompts);
  if (!raw) return raw.error();
  std::vector<LogprobRequest> requests;
  for (const RawPrompt& prompt : raw->prompts) {
    std::vector<LogprobRequest> of_prompt = requests_of(prompt, options);
    if (of_prompt.empty()) {
      return make_error(
          ErrorCode::kInvalidArgument,
          fmt::format("{}: holds no turn of a user or a tool, so there is nothing to answer", prompt.where),
          options.prompts);
    }
    std::move(of_prompt.begin(), of_prompt.end(), std::back_inserter(requests));
  }
  auto reference = connect(options.reference, options);
  if (!reference) return reference.error();
  auto other = connect(options.other, options);
  if (!other) return other.error();

  std::vector<lab::PromptCost> costs, noise;
  std::int64_t tokens = 0;
  std::int64_t other_prompts = 0;  // of other lengths: another tokenizer or template
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto first = reference->ask(requests[i]);
    if (!first) return first.error();
    const auto theirs = other->ask(requests[i]);
    if (!theirs) return theirs.error();
    const auto again = reference->ask(requests[i]);
    if (!again) return again.error();
    costs.push_back(lab::compare_answers(*first, *theirs));
    noise.push_back(lab::compare_answers(*first, *again));
    tokens += first->prompt_tokens;
    other_prompts += first->prompt_tokens == theirs->prompt_tokens ? 0 : 1;
    if (options.progress)
      options.progress(static_cast<std::int64_t>(i) + 1, static_cast<std::int64_t>(requests.size()));
  }

  lab::AuditReport report;
  lab::AuditFacts& facts = report.facts;
  facts.version = kVersion;
  facts.model = reference->model();
  facts.reference = described(*reference);
  facts.limit = kDeepest;
  facts.prompts = options.prompts;
  facts.prompts_sha256 = raw->sha256;
  facts.prompt_count = static_cast<std::int64_t>(requests.size());
  facts.tokens = tokens;
  facts.greedy_steps = options.steps;
  facts.notes.push_back(
      fmt::format("a server tells only its {} most probable tokens, so every KL here is a lower bound; after the first "
                  "token that differs the texts do, and "
                  "nothing more is compared",
                  options.top));
  if (other_prompts > 0) {
    facts.notes.push_back(
        fmt::format("{} of {} prompts have another number of tokens on the other server: its tokenizer or chat "
                    "template is another, and what differs is not "
                    "precision alone",
                    other_prompts, requests.size()));
  }
  report.bins = lab::depth_bins(kDeepest);
  report.choices.push_back(lab::report_choice({"the other server", "server", described(*other)}, costs, report.bins));
  report.choices.push_back(
      lab::report_choice({"the reference again", "noise",
                          "The reference server asked a second time: what batching and scheduling change there."},
                         noise, report.bins));
  lab::rank(report.choices);
  return report;
}

}  // namespace sterling::cli
