// sterling doctor: what this host can do for the server, measured, with a verdict on each point.
#include <array>
#include <string>
#include <vector>

#include <boost/json.hpp>
#include <fmt/format.h>

#include "cli/command.h"
#include "cli/console.h"
#include "config/report.h"
#include "config/resolver.h"
#include "kernels/dispatch.h"
#include "platform/cpu_features.h"
#include "platform/host_limits.h"
#include "platform/thread_pool.h"

namespace sterling::cli {
namespace {

using config::Setting;
using config::SettingType;

constexpr std::array kSettings{
    Setting{.key = "threads",
            .type = SettingType::kInteger,
            .default_text = "0",
            .help = "Threads to measure with; 0: one per physical core.",
            .placeholder = "N",
            .max = 4096},
    Setting{
        .key = "json", .type = SettingType::kBoolean, .default_text = "false", .help = "One JSON document on stdout."},
};
constexpr config::Schema kSchema{.command = "doctor", .settings = kSettings};

constexpr std::string_view kUsage =
    "Usage: sterling doctor [options]\n\n"
    "Looks at this host: instruction sets, the rounding of the BF16 dot product, measured multiply-add rates and read "
    "bandwidth, CPU and\n"
    "memory limits. Takes a second or two.\n\nExample:\n  sterling doctor --json\n\n";

struct Findings {
  platform::CpuFeatures cpu;
  platform::HostLimits limits;
  std::vector<kernels::TierState> tiers;
  kernels::HostRates rates;
  std::string chosen;
  std::size_t threads = 0;
};

struct Verdict {
  std::string severity;  // "ok", "note", "warning"
  std::string text;
};

Expected<Findings> examine(std::size_t threads) {
  Findings findings;
  findings.cpu = platform::detect_cpu_features();
  auto limits = platform::read_host_limits();
  if (!limits) return limits.error();
  findings.limits = std::move(*limits);
  findings.tiers = kernels::inspect_tiers(findings.cpu);
  platform::ThreadPool::Options options;
  options.threads = threads > 0 ? threads : findings.limits.compute_threads;
  findings.threads = options.threads;
  auto pool = platform::ThreadPool::create(options);
  if (!pool) return pool.error();
  auto rates = kernels::measure_rates(**pool, findings.tiers);
  if (!rates) return rates.error();
  findings.rates = std::move(*rates);
  auto chosen = kernels::select("auto", findings.tiers);
  if (!chosen) return chosen.error();
  findings.chosen = (*chosen)->name;
  return findings;
}

std::vector<Verdict> judge(const Findings& f) {
  std::vector<Verdict> verdicts;
  for (const kernels::TierState& tier : f.tiers) {
    if (tier.tier.uses_dot_product && tier.probe.cases > 0 && !tier.probe.canonical()) {
      verdicts.push_back({"warning", fmt::format("the BF16 dot product of this CPU rounds differently ({} of {} "
                                                 "cases): tier {} is not used, results stay comparable",
                                                 tier.probe.mismatches, tier.probe.cases, tier.tier.name)});
    }
  }
  if (f.cpu.zmm_not_saved || f.cpu.ymm_not_saved) {
    verdicts.push_back({"warning", "the operating system does not save the wide registers: faster tiers are off"});
  }
  const platform::HostLimits& limits = f.limits;
  if (limits.cpu_quota && *limits.cpu_quota < static_cast<double>(limits.affinity_cpus.size())) {
    verdicts.push_back({"note", fmt::format("the cgroup's CPU quota is {:.2f} ({}): {} compute threads fit it",
                                            *limits.cpu_quota, limits.cpu_quota_source, limits.compute_threads)});
  }
  if (limits.cgroup_memory_limit && *limits.cgroup_memory_limit < limits.memory_total) {
    verdicts.push_back({"note", fmt::format("the cgroup's memory limit is {} ({}), less than the machine's {}",
                                            format_bytes(static_cast<std::int64_t>(*limits.cgroup_memory_limit)),
                                            limits.cgroup_memory_source,
                                            format_bytes(static_cast<std::int64_t>(limits.memory_total)))});
  }
  if (limits.transparent_huge_pages == "never") {
    verdicts.push_back({"warning",
                        "transparent huge pages are off (never): weights are read more slowly; set "
                        "/sys/kernel/mm/transparent_hugepage/enabled to madvise"});
  }
  if (verdicts.empty()) verdicts.push_back({"ok", "nothing stands in the way"});
  return verdicts;
}

boost::json::value maybe(const std::optional<std::uint64_t>& value) {
  return value ? boost::json::value(*value) : boost::json::value(nullptr);
}

boost::json::object to_json(const Findings& f) {
  boost::json::object cpu{{"vendor", f.cpu.vendor},
                          {"brand", f.cpu.brand},
                          {"family", f.cpu.family},
                          {"model", f.cpu.model},
                          {"class", platform::machine_class(f.cpu)},
                          {"avx2", f.cpu.avx2},
                          {"avx512", f.cpu.avx512},
                          {"avx512_bf16", f.cpu.avx512_bf16},
                          {"amx_bf16", f.cpu.amx_bf16},
                          {"os_saves_ymm", !f.cpu.ymm_not_saved},
                          {"os_saves_zmm", !f.cpu.zmm_not_saved}};
  boost::json::array tiers;
  for (const kernels::TierState& tier : f.tiers) {
    boost::json::object entry{{"name", tier.tier.name},
                              {"usable", tier.usable},
                              {"reason", tier.usable ? boost::json::value(nullptr) : boost::json::value(tier.reason)}};
    if (tier.tier.uses_dot_product && tier.probe.cases > 0) {
      entry["dot_product_probe"] = {{"cases", tier.probe.cases}, {"mismatches", tier.probe.mismatches}};
    }
    for (const kernels::TierRate& rate : f.rates.tiers) {
      if (rate.name != tier.tier.name) continue;
      entry["gflops_one_thread"] = rate.one_thread_gflops;
      entry["gflops_all_threads"] = rate.all_threads_gflops;
    }
    tiers.push_back(std::move(entry));
  }
  boost::json::array bandwidth;
  for (std::size_t i = 0; i < f.rates.read_gb_per_s.size(); ++i) {
    bandwidth.push_back({{"threads", f.rates.read_threads[i]}, {"gb_per_s", f.rates.read_gb_per_s[i]}});
  }
  const platform::HostLimits& l = f.limits;
  boost::json::object limits{
      {"usable_cpus", l.usable_cpus},
      {"compute_threads", l.compute_threads},
      {"cpu_quota", l.cpu_quota ? boost::json::value(*l.cpu_quota) : boost::json::value(nullptr)},
      {"memory_total", l.memory_total},
      {"memory_limit", l.memory_limit},
      {"memory_available", l.memory_available},
      {"cgroup_memory_limit", maybe(l.cgroup_memory_limit)},
      {"transparent_huge_pages", l.transparent_huge_pages},
      {"hugetlb_pages_free", l.hugetlb_pages_free},
      {"memlock_limit", maybe(l.memlock_limit)}};
  boost::json::array verdicts;
  for (const Verdict& verdict : judge(f)) verdicts.push_back({{"severity", verdict.severity}, {"text", verdict.text}});
  return {{"cpu", std::move(cpu)},
          {"tiers", std::move(tiers)},
          {"chosen_tier", f.chosen},
          {"threads", f.threads},
          {"read_bandwidth", std::move(bandwidth)},
          {"limits", std::move(limits)},
          {"verdicts", std::move(verdicts)}};
}

std::string to_text(const Findings& f) {
  std::string text = fmt::format("CPU      {} ({})\n", f.cpu.brand.empty() ? f.cpu.vendor : f.cpu.brand,
                                 platform::machine_class(f.cpu));
  text += "\nKernel tiers (all give the same bits)\n";
  for (const kernels::TierState& tier : f.tiers) {
    std::string state = tier.usable ? "usable" : "no: " + tier.reason;
    for (const kernels::TierRate& rate : f.rates.tiers) {
      if (rate.name == tier.tier.name)
        state = fmt::format("{:7.1f} GFLOP/s on one thread, {:7.1f} on {}", rate.one_thread_gflops,
                            rate.all_threads_gflops, f.threads);
    }
    if (tier.tier.uses_dot_product && tier.probe.cases > 0)
      state += fmt::format("; dot product: {} of {} cases differ", tier.probe.mismatches, tier.probe.cases);
    text += fmt::format("  {:<11} {}{}\n", tier.tier.name, state, tier.tier.name == f.chosen ? "  <- chosen" : "");
  }
  text += "\nRead bandwidth\n";
  for (std::size_t i = 0; i < f.rates.read_gb_per_s.size(); ++i) {
    text += fmt::format("  {:>3} thread{} {:6.1f} GB/s\n", f.rates.read_threads[i],
                        f.rates.read_threads[i] == 1 ? " " : "s", f.rates.read_gb_per_s[i]);
  }
  const platform::HostLimits& l = f.limits;
  text += fmt::format("\nLimits\n  CPUs     {} usable, {} compute threads{}\n", l.usable_cpus, l.compute_threads,
                      l.cpu_quota ? fmt::format(" (quota {:.2f})", *l.cpu_quota) : "");
  text += fmt::format("  memory   {} of {} available\n", format_bytes(static_cast<std::int64_t>(l.memory_available)),
                      format_bytes(static_cast<std::int64_t>(l.memory_limit)));
  text += fmt::format("  pages    transparent huge pages: {}; {} reserved huge pages free\n", l.transparent_huge_pages,
                      l.hugetlb_pages_free);
  text += fmt::format("  memlock  {}\n\nVerdict\n", !l.memlock_known ? "unknown"
                                                    : l.memlock_limit
                                                        ? format_bytes(static_cast<std::int64_t>(*l.memlock_limit))
                                                        : "unlimited");
  for (const Verdict& verdict : judge(f)) text += fmt::format("  {}: {}\n", verdict.severity, verdict.text);
  return text;
}

}  // namespace

int run_doctor(const Invocation& invocation) {
  if (config::asks_for_help(invocation.args)) {
    print_out(std::string(kUsage) + config::help_text(kSchema));
    return kExitOk;
  }
  auto settings = config::resolve(kSchema, {invocation.args, {}, {}});
  if (!settings) return report_error("doctor", settings.error(), false);
  const bool json = settings->boolean("json");
  auto findings = examine(static_cast<std::size_t>(settings->integer("threads")));
  if (!findings) return report_error("doctor", findings.error(), json);
  print_out(json ? boost::json::serialize(to_json(*findings)) + "\n" : to_text(*findings));
  return kExitOk;
}

}  // namespace sterling::cli
