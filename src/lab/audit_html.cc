// The HTML page of an audit. Every element is closed and every text escaped, so that an XML parser reads it too.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

#include <fmt/format.h>

#include "lab/audit_report.h"

namespace sterling::lab {
namespace {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' ? '?' : c;
    }
  }
  return out;
}

constexpr std::string_view kStyle =
    "body{font:15px/1.45 system-ui,sans-serif;max-width:72em;margin:2em auto;padding:0 1em;color:#1c2430}"
    "table{border-collapse:collapse;margin:1em 0}th,td{padding:.25em .7em;border-bottom:1px solid "
    "#d8dde4;text-align:right}"
    "th:first-child,td:first-child,td.l,th.l{text-align:left}caption{text-align:left;font-weight:600;padding:.4em 0}"
    "svg{background:#fbfcfd;border:1px solid #d8dde4;margin:1em 0;max-width:100%;height:auto}svg text{font:12px "
    "system-ui,sans-serif;fill:#1c2430}"
    "code{font-size:.92em}small{color:#5a6675}";

constexpr std::array<std::string_view, 12> kColours = {"#c62828", "#1565c0", "#2e7d32", "#ef6c00",
                                                       "#6a1b9a", "#00838f", "#ad1457", "#558b2f",
                                                       "#4527a0", "#9e6b00", "#37474f", "#d81b60"};

std::string_view colour(std::size_t i) {
  return kColours[i % kColours.size()];
}

// Powers of ten around all positive finite values. Zeros are drawn at the left or lower edge.
struct LogAxis {
  int low = -12;
  int high = 0;
  double from = 0.0, to = 1.0;  // pixels

  double at(double value) const {
    if (!(value > 0.0)) return from;
    const double clipped = std::clamp(std::isfinite(value) ? std::log10(value) : high, static_cast<double>(low),
                                      static_cast<double>(high));
    return from + (to - from) * (clipped - low) / (high - low);
  }
};

LogAxis axis_of(const std::vector<double>& values, double from, double to) {
  double low = std::numeric_limits<double>::infinity();
  double high = 0.0;
  for (const double value : values) {
    if (!(value > 0.0) || !std::isfinite(value)) continue;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  LogAxis axis;
  axis.from = from;
  axis.to = to;
  if (high == 0.0) return axis;
  axis.high = static_cast<int>(std::ceil(std::log10(high)));
  axis.low = std::max(static_cast<int>(std::floor(std::log10(low))), axis.high - 14);
  if (axis.low == axis.high) --axis.low;
  return axis;
}

std::string power_label(int exponent) {
  return fmt::format("1e{}", exponent);
}

// A bar to the mean, a line on to the 99.9 % value, a dot at the largest.
std::string bars(const AuditReport& report) {
  constexpr double kLeft = 250.0, kRight = 880.0, kRow = 26.0, kTop = 20.0;
  std::vector<double> values;
  for (const ChoiceReport& c : report.choices)
    values.insert(values.end(), {c.all.mean_kl, c.all.p999_kl, c.all.max_kl});
  const LogAxis axis = axis_of(values, kLeft, kRight);
  const double bottom = kTop + kRow * static_cast<double>(report.choices.size());
  std::string svg =
      fmt::format("<svg viewBox=\"0 0 900 {0:.0f}\" width=\"900\" height=\"{0:.0f}\" role=\"img\">\n", bottom + 30.0);
  svg += "<title>Divergence from the reference: mean (bar), 99.9 % (line), largest (dot)</title>\n";
  for (int e = axis.low; e <= axis.high; ++e) {
    const double x = axis.at(std::pow(10.0, e));
    svg += fmt::format("<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\" stroke=\"#e3e7ec\"/>", x,
                       kTop, bottom);
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n", x, bottom + 18.0,
                       power_label(e));
  }
  for (std::size_t i = 0; i < report.choices.size(); ++i) {
    const ChoiceReport& c = report.choices[i];
    const double y = kTop + kRow * static_cast<double>(i) + kRow / 2.0;
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>", kLeft - 10.0, y + 4.0,
                       escaped(c.choice.name));
    svg += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"14\" fill=\"{}\"/>", kLeft, y - 7.0,
                       axis.at(c.all.mean_kl) - kLeft, colour(i));
    svg +=
        fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" stroke-width=\"2\"/>",
                    axis.at(c.all.mean_kl), y, axis.at(c.all.p999_kl), y, colour(i));
    svg +=
        fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"{}\"/>\n", axis.at(c.all.max_kl), y, colour(i));
  }
  return svg + "</svg>\n";
}

// Mean divergence over the bins that have positions, one line per choice.
std::string depth_plot(const AuditReport& report, const std::vector<std::size_t>& used) {
  constexpr double kLeft = 70.0, kRight = 640.0, kTop = 20.0, kBottom = 330.0;
  std::vector<double> values;
  for (const ChoiceReport& c : report.choices) {
    for (const std::size_t b : used) values.push_back(c.by_depth[b].mean_kl);
  }
  const LogAxis axis = axis_of(values, kBottom, kTop);
  const double height = std::max(370.0, 40.0 + 18.0 * static_cast<double>(report.choices.size()));
  std::string svg =
      fmt::format("<svg viewBox=\"0 0 900 {0:.0f}\" width=\"900\" height=\"{0:.0f}\" role=\"img\">\n", height);
  svg += "<title>Mean divergence by depth of context</title>\n";
  for (int e = axis.low; e <= axis.high; ++e) {
    const double y = axis.at(std::pow(10.0, e));
    svg += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#e3e7ec\"/>", kLeft, y,
                       kRight, y);
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n", kLeft - 6.0, y + 4.0,
                       power_label(e));
  }
  const auto x_of = [&](std::size_t i) {
    const double step = used.size() > 1 ? (kRight - kLeft - 60.0) / static_cast<double>(used.size() - 1) : 0.0;
    return kLeft + 30.0 + step * static_cast<double>(i);
  };
  for (std::size_t i = 0; i < used.size(); ++i) {
    const DepthBin& bin = report.bins[used[i]];
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}-{}</text>\n", x_of(i), kBottom + 20.0,
                       bin.from, bin.to);
  }
  for (std::size_t c = 0; c < report.choices.size(); ++c) {
    std::string points;
    for (std::size_t i = 0; i < used.size(); ++i) {
      const double y = axis.at(report.choices[c].by_depth[used[i]].mean_kl);
      points += fmt::format("{:.1f},{:.1f} ", x_of(i), y);
      svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>", x_of(i), y, colour(c));
    }
    svg += fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n", points, colour(c));
    const double y = 30.0 + 18.0 * static_cast<double>(c);
    svg += fmt::format("<rect x=\"660\" y=\"{:.1f}\" width=\"12\" height=\"12\" fill=\"{}\"/>", y - 10.0, colour(c));
    svg += fmt::format("<text x=\"680\" y=\"{:.1f}\">{}</text>\n", y, escaped(report.choices[c].choice.name));
  }
  return svg + "</svg>\n";
}

std::string ranked_table(const AuditReport& report) {
  std::string html =
      "<table><caption>Choices, the costliest first</caption>\n<tr><th>#</th><th class=\"l\">choice</th><th "
      "class=\"l\">cause</th>"
      "<th>mean KL</th><th>95 %</th><th>99.9 %</th><th>max</th><th>top-1 flips</th><th>greedy text "
      "differs</th><th>perplexity</th></tr>\n";
  for (std::size_t i = 0; i < report.choices.size(); ++i) {
    const ChoiceReport& c = report.choices[i];
    std::string greedy = report.facts.greedy_steps == 0 ? "-" : fmt::format("0 of {}", c.prompts);
    if (c.earliest) {
      greedy = fmt::format("{} of {}, first at step {} (margin {:.3f})", c.diverged, c.prompts,
                           c.earliest->first_change, c.earliest->margin);
    }
    html += fmt::format(
        "<tr><td>{}</td><td class=\"l\" title=\"{}\">{}</td><td class=\"l\">{}</td><td>{:.2e}</td><td>{:.2e}</td>"
        "<td>{:.2e}</td><td>{:.2e}</td><td>{} ({:.2f} %)</td><td>{}</td><td>{:.4f} ({:+.3f} %)</td></tr>\n",
        i + 1, escaped(c.choice.what), escaped(c.choice.name), escaped(c.choice.cause), c.all.mean_kl, c.all.p95_kl,
        c.all.p999_kl, c.all.max_kl, c.all.flips, 100.0 * c.all.flip_rate(), greedy, c.all.choice_perplexity(),
        100.0 * c.all.perplexity_change());
  }
  return html + "</table>\n";
}

std::string depth_table(const AuditReport& report, const std::vector<std::size_t>& used) {
  std::string html = "<table><caption>Mean KL and top-1 flips by tokens of context</caption>\n<tr><th>choice</th>";
  for (const std::size_t b : used) html += fmt::format("<th>{}-{}</th>", report.bins[b].from, report.bins[b].to);
  html += "</tr>\n";
  for (const ChoiceReport& c : report.choices) {
    html += fmt::format("<tr><td>{}</td>", escaped(c.choice.name));
    for (const std::size_t b : used) {
      html += fmt::format("<td>{:.2e} <small>{:.2f} %</small></td>", c.by_depth[b].mean_kl,
                          100.0 * c.by_depth[b].flip_rate());
    }
    html += "</tr>\n";
  }
  return html + "</table>\n";
}

std::string facts_html(const AuditFacts& facts) {
  std::string html = fmt::format(
      "<table><caption>Measured</caption>\n<tr><td>model</td><td class=\"l\"><code>{}</code></td></tr>\n"
      "<tr><td>fingerprint</td><td class=\"l\"><code>{}</code></td></tr>\n"
      "<tr><td>prompts</td><td class=\"l\">{}: {}, {} tokens, SHA-256 <code>{}</code></td></tr>\n"
      "<tr><td>reference</td><td class=\"l\">{}</td></tr>\n"
      "<tr><td>greedy steps</td><td class=\"l\">{}</td></tr>\n"
      "<tr><td>by</td><td class=\"l\">Sterling {}</td></tr></table>\n",
      escaped(facts.model), escaped(facts.fingerprint), escaped(facts.prompts), facts.prompt_count, facts.tokens,
      escaped(facts.prompts_sha256), escaped(facts.reference), facts.greedy_steps, escaped(facts.version));
  for (const std::string& note : facts.notes) html += "<p>Note: " + escaped(note) + "</p>\n";
  return html;
}

}  // namespace

std::string audit_html(const AuditReport& report) {
  std::vector<std::size_t> used;
  for (std::size_t b = 0; b < report.bins.size(); ++b) {
    if (!report.choices.empty() && report.choices[0].by_depth[b].positions > 0) used.push_back(b);
  }
  std::string html =
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/><title>What precision costs</title>\n<style>";
  html += kStyle;
  html += "</style></head><body>\n<h1>What each precision choice costs</h1>\n";
  html +=
      "<p>KL is the Kullback-Leibler divergence of a choice's next-token distribution from the reference's, in nats, "
      "at every position of the "
      "prompts. Rows change one thing against the reference; causes called combined change several.</p>\n";
  html += ranked_table(report);
  html += "<h2>Divergence</h2>\n<p>Bar: mean. Line: up to the 99.9 % value. Dot: the largest. Logarithmic.</p>\n" +
          bars(report);
  html += "<h2>By depth</h2>\n" + depth_plot(report, used) + depth_table(report, used) + "<h2>Choices</h2>\n<ul>\n";
  for (const ChoiceReport& c : report.choices) {
    html += fmt::format("<li><b>{}</b>: {}</li>\n", escaped(c.choice.name), escaped(c.choice.what));
  }
  return html + "</ul>\n" + facts_html(report.facts) + "</body></html>\n";
}

}  // namespace sterling::lab
