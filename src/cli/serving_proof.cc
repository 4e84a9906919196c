#include "cli/serving_proof.h"

#include <chrono>
#include <numeric>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "proof/proof.h"

namespace sterling::cli {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void log_report(const proof::ProofReport& report, double seconds, const LogSink& log) {
  for (const proof::Finding& finding : report.findings) {
    log(finding.passed ? LogLevel::kInfo : LogLevel::kError,
        fmt::format("Proof of {}: {}: {}", finding.check, finding.passed ? "passed" : "FAILED", finding.detail));
  }
  log(LogLevel::kInfo,
      fmt::format("proof passed={} checks={} seconds={:.3f}", report.passed(), report.findings.size(), seconds));
}

}  // namespace

Status prove_start(Runtime& runtime, const plan::Precision& precision, const LogSink& log) {
  const auto start = std::chrono::steady_clock::now();
  const model::ExecutorLimits& limits = runtime.model->limits();
  std::vector<std::int32_t> blocks(static_cast<std::size_t>(proof::blocks_needed(limits)));
  std::iota(blocks.rbegin(), blocks.rend(), 0);  // not in order, so that a table that is not followed shows
  const auto report = proof::prove(*runtime.model, precision, {blocks, limits.state_slots > 0 ? 0 : -1});
  if (!report) return report.error();
  log_report(*report, seconds_since(start), log);
  if (report->passed()) return {};
  return make_error(
      ErrorCode::kVerification,
      "memory does not hold what the precision table says (see the proof above); the server does not start");
}

std::pair<int, std::string> prove_live(Runtime& runtime, engine::Engine& engine, const plan::Precision& precision,
                                       const LogSink& log) {
  const auto start = std::chrono::steady_clock::now();
  std::optional<Expected<proof::ProofReport>> report;
  const Status ran = engine.run_between_steps(proof::blocks_needed(runtime.model->limits()),
                                              [&](std::span<const std::int32_t> blocks, std::int32_t slot) {
                                                report = proof::prove(*runtime.model, precision, {blocks, slot});
                                              });
  const auto failure = [](int status, const Error& error) {
    const boost::json::object body{{"error", {{"code", error_code_name(error.code)}, {"message", error.message}}}};
    return std::pair{status, boost::json::serialize(body)};
  };
  if (!ran) return failure(503, ran.error());
  if (!*report) return failure(500, report->error());
  const double seconds = seconds_since(start);
  log_report(report->value(), seconds, log);
  boost::json::object body = proof::proof_json(report->value());
  body["seconds"] = seconds;
  return {report->value().passed() ? 200 : 500, boost::json::serialize(body)};
}

}  // namespace sterling::cli
