#include "cli/plan_report.h"

#include <algorithm>

#include <fmt/format.h>

#include "cli/console.h"
#include "plan/engines/rules.h"

namespace sterling::cli {
namespace {

namespace json = boost::json;
using plan::Capacity;

json::value number(const std::optional<std::int64_t>& value) {
  return value ? json::value(*value) : json::value(nullptr);
}

json::object capacity_json(const Capacity& capacity, const PlanReport& report) {
  json::object document;
  document["engine"] = plan::engine_name(report.engine);
  document["tp"] = report.tp;
  document["kv_cache_dtype"] = capacity.kv_cache_dtype;
  document["per_rank"] = {
      {"weights_bytes", number(capacity.weights_bytes)},
      {"kv_heads", capacity.kv_bytes_per_token ? json::value(capacity.kv_heads) : json::value(nullptr)},
      {"kv_bytes_per_token", number(capacity.kv_bytes_per_token)},
      {"state_bytes_per_sequence", number(capacity.state_bytes_per_sequence)},
      {"workspace_bytes", number(capacity.workspace_bytes)},
      {"memory_bytes", number(capacity.memory_bytes)},
      {"kv_pool_bytes", number(capacity.kv_pool_bytes)},
      {"kv_tokens", number(capacity.kv_tokens)}};
  document["unique"] = {{"kv_bytes_per_token", number(capacity.unique_kv_bytes_per_token)}};
  json::array rows;
  for (const plan::Concurrency& row : capacity.concurrency) {
    json::object entry{{"context", row.context}, {"sequences", number(row.sequences)}};
    entry["bound_by"] = row.sequences ? json::value(row.bound_by) : json::value(nullptr);
    if (row.sequences_with_state) entry["sequences_with_state"] = *row.sequences_with_state;
    rows.push_back(std::move(entry));
  }
  document["concurrency"] = std::move(rows);
  document["fits"] = capacity.fits ? json::value(*capacity.fits) : json::value(nullptr);
  if (!capacity.fits_reason.empty()) document["fits_reason"] = capacity.fits_reason;
  json::object figures;
  for (const plan::EngineFigure& figure : capacity.figures) {
    if (figure.whole) {
      figures[figure.name] = static_cast<std::int64_t>(figure.value);
    } else {
      figures[figure.name] = figure.value;
    }
  }
  document["engine_figures"] = std::move(figures);
  return document;
}

json::array texts(const std::vector<std::string>& list) {
  json::array array;
  for (const std::string& text : list) array.emplace_back(text);
  return array;
}

// What the notes of the command and of the engine's rule say, each once.
std::vector<std::string> assumptions(const PlanReport& report) {
  std::vector<std::string> all = report.notes;
  for (const std::string& text : report.chosen.assumptions) {
    if (std::find(all.begin(), all.end(), text) == all.end()) all.push_back(text);
  }
  return all;
}

std::string bytes_text(const std::optional<std::int64_t>& bytes) {
  return bytes ? fmt::format("{:>20} B  {:>12}", plan::grouped(*bytes), format_bytes(*bytes))
               : fmt::format("{:>20}", "unknown");
}

std::string fits_text(const Capacity& capacity) {
  const std::string reason = capacity.fits_reason.empty() ? "" : ": " + capacity.fits_reason;
  if (!capacity.fits) return "can't be told" + reason;
  return (*capacity.fits ? "yes" : "NO") + reason;
}

std::string concurrency_text(const PlanReport& report) {
  std::vector<const Capacity*> all = {&report.chosen};
  for (const Capacity& other : report.alternatives) all.push_back(&other);
  std::string text = fmt::format("\n{:<18}{:>14}{:>16}", "KV cache", "B per token", "tokens");
  for (const plan::Concurrency& row : report.chosen.concurrency)
    text += fmt::format("{:>14}", plan::grouped(row.context));
  text += "   sequences by context\n";
  for (const Capacity* capacity : all) {
    const auto show = [](const std::optional<std::int64_t>& n) { return n ? plan::grouped(*n) : std::string("-"); };
    text += fmt::format("{:<18}{:>14}{:>16}", capacity->kv_cache_dtype, show(capacity->kv_bytes_per_token),
                        show(capacity->kv_tokens));
    for (const plan::Concurrency& row : capacity->concurrency) {
      const std::string with = row.sequences_with_state ? fmt::format(" ({})", *row.sequences_with_state) : "";
      text += fmt::format("{:>14}", (row.sequences ? show(row.sequences) : "-") + with +
                                        (row.sequences && row.bound_by != "kv" ? "*" : ""));
    }
    text += "\n";
  }
  bool starred = false;
  bool with_state = false;
  for (const plan::Concurrency& row : report.chosen.concurrency) {
    starred = starred || (row.sequences && row.bound_by != "kv");
    with_state = with_state || row.sequences_with_state;
  }
  if (starred) text += "* bound by state slots or the number of running sequences, not by the KV pool\n";
  if (with_state) text += "( ) with the sequences' recurrent state inside the same pool\n";
  return text;
}

}  // namespace

json::object plan_json(const PlanReport& report) {
  json::object document = capacity_json(report.chosen, report);
  if (report.replicas) document["replicas"] = *report.replicas;
  json::array alternatives;
  for (const Capacity& other : report.alternatives) alternatives.push_back(capacity_json(other, report));
  document["alternatives"] = std::move(alternatives);
  document["assumptions"] = texts(assumptions(report));
  if (report.explain) document["formulas"] = texts(report.chosen.formulas);
  return document;
}

std::string plan_text(const PlanReport& report) {
  const Capacity& chosen = report.chosen;
  std::string text = fmt::format("{}\n{} · {} · TP {} · KV cache {}\n\n", report.path,
                                 report.architecture.empty() ? "unknown architecture" : report.architecture,
                                 plan::engine_name(report.engine), report.tp, chosen.kv_cache_dtype);
  const auto line = [&text](std::string_view name, const std::optional<std::int64_t>& bytes) {
    text += fmt::format("{:<24}{}\n", name, bytes_text(bytes));
  };
  text += report.tp > 1 ? "per rank\n" : "";
  line("memory", chosen.memory_bytes);
  line("weights", chosen.weights_bytes);
  line("workspace", chosen.workspace_bytes);
  line("KV pool", chosen.kv_pool_bytes);
  line("K/V per token", chosen.kv_bytes_per_token);
  if (report.tp > 1) line("  without replication", chosen.unique_kv_bytes_per_token);
  if (chosen.state_bytes_per_sequence != 0) line("state per sequence", chosen.state_bytes_per_sequence);
  text += fmt::format("{:<24}{}\n", "fits", fits_text(chosen));
  text += concurrency_text(report);
  for (const plan::EngineFigure& figure : chosen.figures) {
    text += fmt::format(
        "{}{:<32}{}\n", &figure == chosen.figures.data() ? "\n" : "", figure.name,
        figure.whole ? plan::grouped(static_cast<std::int64_t>(figure.value)) : fmt::format("{:.2f}", figure.value));
  }
  if (report.explain) {
    text += "\nformulas\n";
    for (const std::string& formula : chosen.formulas) text += fmt::format("  {}\n", formula);
  }
  text += "\nassumptions\n";
  for (const std::string& assumption : assumptions(report)) text += fmt::format("  - {}\n", assumption);
  return text;
}

}  // namespace sterling::cli
