#include "lab/audit_report.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace sterling::lab {
namespace {

boost::json::value number(double value) {
  return std::isfinite(value) ? boost::json::value(value) : boost::json::value(nullptr);
}

boost::json::object summary_json(const CostSummary& summary) {
  return {{"positions", summary.positions},
          {"kl",
           {{"mean", number(summary.mean_kl)},
            {"p95", number(summary.p95_kl)},
            {"p99_9", number(summary.p999_kl)},
            {"max", number(summary.max_kl)}}},
          {"top1_flips", {{"count", summary.flips}, {"rate", summary.flip_rate()}}},
          {"perplexity",
           {{"positions", summary.scored},
            {"reference", number(summary.reference_perplexity())},
            {"choice", number(summary.choice_perplexity())},
            {"difference", number(summary.choice_perplexity() - summary.reference_perplexity())},
            {"change", number(summary.perplexity_change())},
            {"nll_difference", number(summary.choice_nll - summary.reference_nll)}}}};
}

boost::json::object greedy_json(const ChoiceReport& choice, std::int64_t steps) {
  boost::json::object out{{"prompts", choice.prompts}, {"steps", steps}, {"diverged", choice.diverged}};
  out["first"] = nullptr;
  if (choice.earliest) {
    out["first"] = {{"prompt", *choice.earliest_prompt},
                    {"step", choice.earliest->first_change},
                    {"margin", number(static_cast<double>(choice.earliest->margin))}};
  }
  return out;
}

std::string bin_name(const DepthBin& bin) {
  const auto edge = [](std::int64_t n) {
    return n >= 1024 && n % 1024 == 0 ? fmt::format("{}k", n / 1024) : std::to_string(n);
  };
  return fmt::format("{}-{}", edge(bin.from), edge(bin.to));
}

}  // namespace

ChoiceReport report_choice(const AuditChoice& choice, const std::vector<PromptCost>& prompts,
                           const std::vector<DepthBin>& bins) {
  ChoiceReport report;
  report.choice = choice;
  report.prompts = static_cast<std::int64_t>(prompts.size());
  std::vector<PositionCost> all;
  std::vector<std::vector<PositionCost>> per_bin(bins.size());
  for (std::size_t p = 0; p < prompts.size(); ++p) {
    const PromptCost& prompt = prompts[p];
    all.insert(all.end(), prompt.rows.begin(), prompt.rows.end());
    for (const PositionCost& row : prompt.rows) {
      const auto holds = [&](const DepthBin& bin) { return row.position >= bin.from && row.position < bin.to; };
      const auto bin = std::find_if(bins.begin(), bins.end(), holds);
      if (bin != bins.end()) per_bin[static_cast<std::size_t>(bin - bins.begin())].push_back(row);
    }
    if (!prompt.greedy.diverged()) continue;
    ++report.diverged;
    if (!report.earliest || prompt.greedy.first_change < report.earliest->first_change) {
      report.earliest = prompt.greedy;
      report.earliest_prompt = static_cast<std::int64_t>(p);
    }
  }
  report.all = summarise(all);
  for (const auto& rows : per_bin) report.by_depth.push_back(summarise(rows));
  return report;
}

void rank(std::vector<ChoiceReport>& choices) {
  std::sort(choices.begin(), choices.end(), [](const ChoiceReport& a, const ChoiceReport& b) {
    if (a.all.mean_kl != b.all.mean_kl) return a.all.mean_kl > b.all.mean_kl;
    return a.choice.name < b.choice.name;
  });
}

boost::json::object audit_json(const AuditReport& report) {
  const AuditFacts& facts = report.facts;
  boost::json::array choices;
  for (const ChoiceReport& choice : report.choices) {
    boost::json::object entry{{"rank", static_cast<std::int64_t>(choices.size()) + 1},
                              {"name", choice.choice.name},
                              {"cause", choice.choice.cause},
                              {"what", choice.choice.what}};
    for (auto& [key, value] : summary_json(choice.all)) entry[key] = value;
    entry["greedy"] = greedy_json(choice, facts.greedy_steps);
    boost::json::array depths;
    for (std::size_t b = 0; b < report.bins.size(); ++b) {
      boost::json::object depth{{"from", report.bins[b].from}, {"to", report.bins[b].to}};
      for (auto& [key, value] : summary_json(choice.by_depth[b])) depth[key] = value;
      if (choice.by_depth[b].positions == 0)
        depth = {{"from", report.bins[b].from}, {"to", report.bins[b].to}, {"positions", 0}};
      depths.push_back(std::move(depth));
    }
    entry["by_depth"] = std::move(depths);
    choices.push_back(std::move(entry));
  }
  boost::json::array notes;
  for (const std::string& note : facts.notes) notes.emplace_back(note);
  return {{"version", facts.version},
          {"model", {{"path", facts.model}, {"fingerprint", facts.fingerprint}, {"limit", facts.limit}}},
          {"prompts",
           {{"path", facts.prompts},
            {"sha256", facts.prompts_sha256},
            {"count", facts.prompt_count},
            {"tokens", facts.tokens}}},
          {"reference", facts.reference},
          {"chunk", facts.chunk},
          {"choices", std::move(choices)},
          {"notes", std::move(notes)}};
}

std::string audit_text(const AuditReport& report) {
  const AuditFacts& facts = report.facts;
  std::string text = fmt::format("{} · {} prompt{}, {} tokens · against {}\n\n", facts.model, facts.prompt_count,
                                 facts.prompt_count == 1 ? "" : "s", facts.tokens, facts.reference);
  text += fmt::format("{:>2}  {:<30}{:<13}{:>10}{:>11}{:>11}{:>11}{:>16}{:>19}{:>13}\n", "#", "choice", "cause",
                      "mean KL", "95 %", "99.9 %", "max", "top-1 flips", "greedy differs", "perplexity");
  for (std::size_t i = 0; i < report.choices.size(); ++i) {
    const ChoiceReport& c = report.choices[i];
    std::string greedy = facts.greedy_steps == 0 ? "-" : fmt::format("0/{}", c.prompts);
    if (c.earliest) greedy = fmt::format("{}/{} from step {}", c.diverged, c.prompts, c.earliest->first_change);
    text += fmt::format("{:>2}  {:<30}{:<13}{:>10.2e}{:>11.2e}{:>11.2e}{:>11.2e}{:>16}{:>19}{:>+11.3f} %\n", i + 1,
                        c.choice.name, c.choice.cause, c.all.mean_kl, c.all.p95_kl, c.all.p999_kl, c.all.max_kl,
                        fmt::format("{} ({:.2f} %)", c.all.flips, 100.0 * c.all.flip_rate()), greedy,
                        100.0 * c.all.perplexity_change());
  }
  text += fmt::format("\nmean KL by depth (top-1 flips)\n{:<30}", "tokens of context");
  std::vector<std::size_t> used;
  for (std::size_t b = 0; b < report.bins.size(); ++b) {
    if (report.choices.empty() || report.choices[0].by_depth[b].positions == 0) continue;
    used.push_back(b);
    text += fmt::format("{:>18}", bin_name(report.bins[b]));
  }
  text += '\n';
  for (const ChoiceReport& c : report.choices) {
    text += fmt::format("{:<30}", c.choice.name);
    for (const std::size_t b : used) {
      text += fmt::format("{:>18}", fmt::format("{:.2e} ({})", c.by_depth[b].mean_kl, c.by_depth[b].flips));
    }
    text += '\n';
  }
  if (!report.choices.empty() && report.choices[0].all.scored > 0) {
    text += fmt::format("\nperplexity of the reference: {:.4f}\n", report.choices[0].all.reference_perplexity());
  }
  for (const std::string& note : facts.notes) text += "note: " + note + "\n";
  return text;
}

}  // namespace sterling::lab
