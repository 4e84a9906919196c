#include "cli/serving_precision.h"

#include <filesystem>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "cli/precision_subject.h"
#include "cli/version.h"
#include "lab/fingerprint.h"

namespace sterling::cli {
namespace {

plan::Requested requested(const config::Asked& asked) {
  return {asked.value, asked.by};
}

plan::PrecisionWishes wishes_of(const config::ServeOptions& options) {
  plan::PrecisionWishes wishes;
  wishes.compute = requested(options.compute);
  wishes.kv = requested(options.kv_cache_dtype);
  wishes.kv_k = requested(options.kv_cache_dtype_k);
  wishes.kv_v = requested(options.kv_cache_dtype_v);
  wishes.accept_unscaled_kv = options.accept_unscaled_kv;
  wishes.strict = options.strict;
  return wishes;
}

// `spec` is what model::check has read. No weight is read.
Expected<ServingPrecision> resolve_serving_precision(const config::ServeOptions& options, const Runtime& runtime,
                                                     const ModelSpec& spec) {
  ServingPrecision result;
  result.inspection = lab::inspect(*runtime.checkpoint);
  PrecisionRequest request;
  request.checkpoint = runtime.checkpoint.get();
  request.spec = &spec;
  request.inspection = &result.inspection;
  request.backend = runtime.backend->capabilities();
  request.wishes = wishes_of(options);
  request.kv_scales_file = options.kv_scales;
  auto precision = resolve(request);
  if (!precision) return precision.error();
  result.precision = *precision;

  plan::ManifestFacts facts;
  facts.version = kVersion;
  facts.model = served_name(options);
  facts.architecture = spec.architecture;
  facts.fingerprint = lab::checkpoint_fingerprint(*runtime.checkpoint);
  facts.isa = runtime.kernels->name;
  facts.arithmetic = "canonical";
  facts.kernels = runtime.backend->kernels();
  facts.metadata = metadata_wish(*runtime.checkpoint);
  result.manifest = plan::manifest_json(facts, result.precision);
  return result;
}

}  // namespace

std::string served_name(const config::ServeOptions& options) {
  if (options.served_model_name) return *options.served_model_name;
  const std::filesystem::path path = std::filesystem::path(options.model).lexically_normal();
  const std::string last = path.has_filename() ? path.filename().string() : path.parent_path().filename().string();
  return last.empty() ? options.model : last;
}

Expected<OpenedServing> open_serving(const config::ServeOptions& options) {
  RuntimeOptions runtime;
  runtime.model = options.model;
  runtime.compute = options.compute.value == "fp32" ? backend::Compute::kFp32 : backend::Compute::kBf16;
  runtime.isa = options.isa;
  runtime.threads = options.threads;
  runtime.pin_threads = options.pin_threads;
  auto opened = open_runtime(runtime);
  if (!opened) return opened.error();
  auto checked = model::check(*opened->checkpoint);
  if (!checked) return checked.error();
  auto precision = resolve_serving_precision(options, *opened, checked->spec);
  if (!precision) return precision.error();
  return OpenedServing{std::move(*opened), std::move(*precision)};
}

std::string precision_text(const ServingPrecision& precision) {
  std::string text = plan::precision_table(precision.precision);
  text += fmt::format("manifest {}\n", precision.hash());
  if (!precision.precision.metadata_note.empty()) text += precision.precision.metadata_note + "\n";
  for (const std::string& warning : precision.precision.warnings) text += "warning: " + warning + "\n";
  return text;
}

void log_precision(const ServingPrecision& precision, const LogSink& log) {
  std::istringstream table(plan::precision_table(precision.precision));
  for (std::string line; std::getline(table, line);) log(LogLevel::kInfo, line);
  if (!precision.precision.metadata_note.empty()) log(LogLevel::kInfo, precision.precision.metadata_note);
  for (const std::string& warning : precision.precision.warnings) log(LogLevel::kWarning, warning);
  log(LogLevel::kInfo, fmt::format("precision_manifest={}", boost::json::serialize(precision.manifest)));
}

server::PrecisionFacts precision_facts(const ServingPrecision& precision, const Runtime& runtime) {
  server::PrecisionFacts facts;
  facts.hash = precision.hash();
  facts.kv_cache_dtype = plan::kv_format_name(precision.precision.kv);
  facts.kv_scales = plan::kv_scale_state_name(precision.precision.kv_scale_state);
  facts.compute = precision.precision.compute;
  facts.isa = runtime.kernels->name;
  facts.unscaled_kv = precision.precision.unscaled_accepted;
  facts.elements = [backend = runtime.backend.get(), layers = runtime.model->spec().layers] {
    std::vector<server::KvElements> result;
    std::int32_t kv_layer = 0;
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
      if (layers[layer] != LayerKind::kFullAttention) continue;
      for (const bool value : {false, true}) {
        const backend::KvCounters counters = backend->kv_counters(kv_layer, value);
        result.push_back({static_cast<std::int32_t>(layer), value, counters.written, counters.clipped,
                          counters.underflowed, counters.non_finite});
      }
      ++kv_layer;
    }
    return result;
  };
  return facts;
}

}  // namespace sterling::cli
