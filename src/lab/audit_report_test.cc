#include "lab/audit_report.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace sterling::lab {
namespace {

PromptCost prompt(std::size_t rows, double kl, std::int32_t first_change) {
  PromptCost out;
  for (std::size_t i = 0; i < rows; ++i) {
    const bool last = i + 1 == rows;
    out.rows.push_back({kl * static_cast<double>(i + 1), last ? std::nan("") : -1.0, last ? std::nan("") : -1.5, 0.5F,
                        3, i == 1 ? 4 : 3, static_cast<std::int32_t>(i)});
  }
  out.greedy = {16, first_change, 0.125F};
  return out;
}

AuditReport example() {
  AuditReport report;
  report.facts.version = "0.1.0";
  report.facts.model = "a <model> & \"more\"";
  report.facts.greedy_steps = 16;
  report.facts.prompt_count = 2;
  report.facts.notes = {"K & V"};
  report.bins = depth_bins(2000);
  report.choices.push_back(
      report_choice({"kv bf16", "kv", "K and V in BF16."}, {prompt(300, 1e-6, -1), prompt(10, 1e-6, 7)}, report.bins));
  report.choices.push_back(
      report_choice({"kv <fp8>", "kv", "K & V in FP8."}, {prompt(300, 1e-3, 5), prompt(10, 1e-3, 2)}, report.bins));
  report.choices.push_back(
      report_choice({"a nothing", "none", "The reference."}, {prompt(300, 0.0, -1), prompt(10, 0.0, -1)}, report.bins));
  rank(report.choices);
  return report;
}

TEST(AuditReport, RanksTheCostliestFirst) {
  const AuditReport report = example();
  EXPECT_EQ(report.choices[0].choice.name, "kv <fp8>");
  EXPECT_EQ(report.choices[1].choice.name, "kv bf16");
  EXPECT_EQ(report.choices[2].choice.name, "a nothing");
  // NaN in the choice's logits: infinite, and so the first.
  auto choices = report.choices;
  choices[2].all.mean_kl = std::numeric_limits<double>::infinity();
  rank(choices);
  EXPECT_EQ(choices[0].choice.name, "a nothing");
}

TEST(AuditReport, SplitsPositionsByDepth) {
  const AuditReport report = example();
  const ChoiceReport& worst = report.choices[0];
  ASSERT_EQ(worst.by_depth.size(), 3U);
  EXPECT_EQ(worst.by_depth[0].positions, 256 + 10);
  EXPECT_EQ(worst.by_depth[1].positions, 44);
  EXPECT_EQ(worst.by_depth[2].positions, 0);
  EXPECT_EQ(worst.all.positions, 310);
  EXPECT_NEAR(worst.by_depth[1].mean_kl, 1e-3 * (257 + 300) / 2.0, 1e-12);
  EXPECT_EQ(worst.by_depth[0].flips, 2);
  EXPECT_EQ(worst.by_depth[1].flips, 0);
}

TEST(AuditReport, GreedyKeepsTheEarliestDivergence) {
  const AuditReport report = example();
  EXPECT_EQ(report.choices[0].diverged, 2);
  EXPECT_EQ(report.choices[0].earliest->first_change, 2);
  EXPECT_EQ(report.choices[0].earliest_prompt, 1);
  EXPECT_EQ(report.choices[1].diverged, 1);
  EXPECT_FALSE(report.choices[2].earliest.has_value());
}

TEST(AuditReport, JsonHasTheNumbers) {
  const boost::json::object json = audit_json(example());
  const auto& first = json.at("choices").at(0);
  EXPECT_EQ(first.at("rank").as_int64(), 1);
  EXPECT_EQ(first.at("name").as_string(), "kv <fp8>");
  EXPECT_DOUBLE_EQ(first.at("kl").at("max").as_double(), 0.3);
  EXPECT_EQ(first.at("top1_flips").at("count").as_int64(), 2);
  EXPECT_NEAR(first.at("perplexity").at("difference").as_double(), std::exp(1.5) - std::exp(1.0), 1e-12);
  EXPECT_EQ(first.at("greedy").at("first").at("step").as_int64(), 2);
  EXPECT_EQ(first.at("by_depth").as_array().size(), 3U);
  EXPECT_EQ(first.at("by_depth").at(2).at("positions").as_int64(), 0);
}

// Enough of XML to find what a browser would trip over: every tag closed in order, no bare < or &.
bool well_formed(std::string_view text) {
  std::vector<std::string> open;
  std::size_t at = text.find("<html");
  while (at < text.size()) {
    if (text[at] == '&') {
      const std::size_t end = text.find(';', at);
      const std::string_view name = text.substr(at + 1, end - at - 1);
      if (name != "amp" && name != "lt" && name != "gt" && name != "quot") return false;
      at = end;
    } else if (text[at] == '<') {
      const std::size_t end = text.find('>', at);
      if (end == std::string_view::npos) return false;
      const std::string_view tag = text.substr(at + 1, end - at - 1);
      if (tag.find('<') != std::string_view::npos) return false;
      if (tag.starts_with('/')) {
        if (open.empty() || open.back() != tag.substr(1)) return false;
        open.pop_back();
      } else if (!tag.ends_with('/')) {
        open.emplace_back(tag.substr(0, tag.find(' ')));
      }
      at = end;
    }
    ++at;
  }
  return open.empty();
}

TEST(AuditReport, TheHtmlPageIsWellFormedAndFetchesNothing) {
  ASSERT_FALSE(well_formed("<html><p></html>"));
  ASSERT_FALSE(well_formed("<html>a & b</html>"));
  const std::string html = audit_html(example());
  EXPECT_TRUE(well_formed(html));
  for (const char* word : {"http", "src=", "href=", "url(", "@import", "<script", "<link", "nan", "inf\""}) {
    EXPECT_EQ(html.find(word), std::string::npos) << word;
  }
  EXPECT_NE(html.find("kv &lt;fp8&gt;"), std::string::npos);
  EXPECT_NE(html.find("<polyline"), std::string::npos);
  AuditReport empty;
  empty.bins = depth_bins(10);
  EXPECT_TRUE(well_formed(audit_html(empty)));
}

TEST(AuditReport, TextNamesEveryChoiceAndBin) {
  const std::string text = audit_text(example());
  for (const char* word : {"kv <fp8>", "kv bf16", "0-256", "256-1k", "2/2 from step 2", "note: K & V"}) {
    EXPECT_NE(text.find(word), std::string::npos) << word << "\n" << text;
  }
  EXPECT_EQ(text.find("1k-2000"), std::string::npos);
}

}  // namespace
}  // namespace sterling::lab
