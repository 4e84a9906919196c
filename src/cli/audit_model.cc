#include "cli/audit_model.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include "cli/audit_run.h"
#include "cli/hub_access.h"
#include "cli/prompt_file.h"
#include "cli/runtime.h"
#include "cli/version.h"
#include "lab/fingerprint.h"
#include "lab/quantize.h"
#include "platform/host_limits.h"
#include "platform/sha256.h"

namespace sterling::cli {
namespace {

namespace fs = std::filesystem;

// A folder that goes with its owner: weights that were quantised for one audit.
class TemporaryFolder {
 public:
  TemporaryFolder() = default;
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  Expected<fs::path> make() {
    std::error_code error;
    const fs::path parent = fs::temp_directory_path(error);
    std::string pattern = (parent / "sterling-audit-XXXXXX").string();
    if (error || ::mkdtemp(pattern.data()) == nullptr) {
      return make_error(
          ErrorCode::kIo,
          fmt::format("no folder could be made in {} for quantised weights; TMPDIR names another", parent.string()),
          "TMPDIR");
    }
    path_ = pattern;
    return path_;
  }

 private:
  fs::path path_;
};

Expected<fs::path> cache_folder(const Invocation& invocation) {
  const auto value = [&](std::string_view name) -> std::string {
    for (const auto& [key, text] : invocation.environment) {
      if (key == name) return text;
    }
    return {};
  };
  fs::path base = value("XDG_CACHE_HOME");
  if (base.empty() && !value("HOME").empty()) base = fs::path(value("HOME")) / ".cache";
  if (base.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "--state: neither XDG_CACHE_HOME nor HOME is set; name a file",
                      "--state");
  }
  const fs::path folder = base / "sterling" / "audit";
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return make_error(ErrorCode::kIo, fmt::format("{}: {}", folder.string(), error.message()), "--state");
  return folder;
}

std::string file_digest(const std::optional<std::string>& path) {
  if (!path) return "";
  std::ifstream file(*path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return platform::sha256(bytes.str());
}

// Quantised copies of the model, opened.
struct Copies {
  std::map<lab::WeightTarget, std::unique_ptr<formats::Checkpoint>> open;

  Status make(const formats::Checkpoint& source, const fs::path& folder, const AuditModelOptions& options,
              platform::ThreadPool& pool) {
    for (const lab::WeightTarget target : options.wishes.weights) {
      lab::QuantizeOptions quantize;
      quantize.target = target;
      quantize.out = folder / std::string(lab::weight_target_name(target));
      quantize.version = kVersion;
      quantize.stopped = options.stopped;
      if (auto report = lab::quantize(source, quantize, pool); !report) return report.error();
      auto opened = formats::Checkpoint::open(quantize.out.string());
      if (!opened) return opened.error();
      open[target] = std::make_unique<formats::Checkpoint>(std::move(*opened));
    }
    return {};
  }
};

class ModelAudit {
 public:
  ModelAudit(const AuditModelOptions& options, const Invocation& invocation)
      : options_(options), invocation_(invocation) {}

  Expected<lab::AuditReport> run() {
    if (Status status = open(); !status) return status.error();
    if (Status status = choose(); !status) return status.error();
    if (Status status = measure(); !status) return status.error();
    return report();
  }

 private:
  Status open() {
    auto found = resolve_model(options_.model, invocation_);
    if (!found) return found.error();
    RuntimeOptions wish;
    wish.model = found->path.string();
    wish.compute = backend::Compute::kFp32;
    wish.isa = options_.isa;
    if (options_.threads > 0) wish.threads = options_.threads;
    auto opened = open_runtime(wish);
    if (!opened) return opened.error();
    runtime_ = std::move(*opened);
    auto checked = model::check(*runtime_.checkpoint);
    if (!checked) return checked.error();
    checked_ = std::move(*checked);
    const std::int64_t limit = checked_.spec.max_position_embeddings;
    if (options_.context > limit) {
      return make_error(ErrorCode::kInvalidArgument,
                        fmt::format("--context {} is beyond what the model was made for: max_position_embeddings is {}",
                                    options_.context, limit),
                        "--context");
    }
    const std::int64_t context = options_.context > 0 ? options_.context : limit;
    auto prompts =
        read_prompts(options_.prompts, *runtime_.checkpoint, {context, options_.max_tokens, checked_.spec.vocab_size});
    if (!prompts) return prompts.error();
    prompts_ = std::move(*prompts);
    return {};
  }

  Status choose() {
    auto list = list_choices(*runtime_.checkpoint, checked_, options_.wishes);
    if (!list) return list.error();
    choices_ = std::move(*list);
    fingerprint_ = lab::checkpoint_fingerprint(*runtime_.checkpoint);
    return {};
  }

  // Everything that the numbers depend on.
  std::string key() const {
    std::string text = fmt::format("{}|{}|{}|{}|{}|{}|{}|{}|{}", kVersion, fingerprint_, prompts_.sha256,
                                   options_.context, options_.max_tokens, options_.greedy, options_.chunk,
                                   options_.wishes.activations, file_digest(options_.wishes.kv_scales_file));
    for (const ChoicePlan& plan : choices_.choices) text += "|" + plan.choice.name;
    return platform::sha256(text);
  }

  Status measure() {
    const std::string key = this->key();
    fs::path path;
    if (options_.state) {
      path = *options_.state;
    } else {
      auto folder = cache_folder(invocation_);
      if (!folder) return folder.error();
      path = *folder / (key + ".state");
    }
    std::error_code ignored;
    if (options_.fresh) fs::remove(path, ignored);
    auto state = lab::AuditState::open(path.string(), key);
    if (!state) return state.error();
    if (Status status = fill(*state); !status) return status;
    for (std::size_t c = 0; c < choices_.choices.size(); ++c) {
      std::vector<lab::PromptCost> costs;
      for (std::size_t p = 0; p < prompts_.prompts.size(); ++p) {
        costs.push_back(*state->find(static_cast<std::int32_t>(c), static_cast<std::int32_t>(p)));
      }
      costs_.push_back(std::move(costs));
    }
    if (!options_.state) fs::remove(path, ignored);
    return {};
  }

  Status fill(lab::AuditState& state) {
    TemporaryFolder folder;
    Copies copies;
    if (!options_.wishes.weights.empty()) {
      auto path = folder.make();
      if (!path) return path.error();
      if (Status status = copies.make(*runtime_.checkpoint, *path, options_, *runtime_.pool); !status) return status;
    }
    auto limits = platform::read_host_limits();
    if (!limits) return limits.error();
    std::size_t longest = 1;
    for (const auto& prompt : prompts_.prompts) longest = std::max(longest, prompt.size());
    AuditTask task;
    task.checkpoint = runtime_.checkpoint.get();
    for (const auto& [target, checkpoint] : copies.open) task.quantised[target] = checkpoint.get();
    task.spec = &checked_.spec;
    task.machine.kernels = runtime_.kernels;
    task.machine.pool = runtime_.pool.get();
    task.machine.max_tokens = static_cast<std::int32_t>(std::min<std::int64_t>(
        static_cast<std::int64_t>(longest) + options_.greedy, checked_.spec.max_position_embeddings));
    task.machine.chunk = options_.chunk;
    task.choices = choices_.choices;
    task.prompts = prompts_.prompts;
    task.greedy_steps = options_.greedy;
    task.memory_available = static_cast<std::int64_t>(limits->memory_available);
    task.progress = options_.progress;
    task.stopped = options_.stopped;
    return run_audit(task, state);
  }

  lab::AuditReport report() const {
    lab::AuditReport report;
    lab::AuditFacts& facts = report.facts;
    facts.version = kVersion;
    facts.model = options_.model;
    facts.fingerprint = fingerprint_;
    facts.limit = checked_.spec.max_position_embeddings;
    facts.prompts = options_.prompts;
    facts.prompts_sha256 = prompts_.sha256;
    facts.prompt_count = static_cast<std::int64_t>(prompts_.prompts.size());
    facts.tokens = prompts_.tokens;
    facts.greedy_steps = options_.greedy;
    facts.chunk = options_.chunk;
    facts.notes = choices_.notes;
    if (prompts_.cut > 0)
      facts.notes.push_back(fmt::format("{} prompts were longer than the context and lost their end", prompts_.cut));
    report.bins = lab::depth_bins(facts.limit);
    for (std::size_t c = 0; c < costs_.size(); ++c) {
      report.choices.push_back(lab::report_choice(choices_.choices[c].choice, costs_[c], report.bins));
    }
    lab::rank(report.choices);
    return report;
  }

  const AuditModelOptions& options_;
  const Invocation& invocation_;
  Runtime runtime_;
  model::CheckResult checked_;
  PromptFile prompts_;
  ChoiceList choices_;
  std::string fingerprint_;
  std::vector<std::vector<lab::PromptCost>> costs_;  // [choice][prompt]
};

}  // namespace

Expected<lab::AuditReport> audit_model(const AuditModelOptions& options, const Invocation& invocation) {
  return ModelAudit(options, invocation).run();
}

}  // namespace sterling::cli
