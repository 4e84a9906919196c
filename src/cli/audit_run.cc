#include "cli/audit_run.h"

#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "cli/console.h"

namespace sterling::cli {
namespace {

// Of what is free, the part that several choices at once may fill: others live on the machine too.
constexpr double kShareOfMemory = 0.5;

struct Running {
  std::int32_t index = 0;  // of the choice
  std::unique_ptr<AuditSubject> subject;
  lab::PromptCost cost;     // of the prompt at work
  std::vector<float> last;  // logits after it
  bool active = false;      // has something to do for this prompt
};

class AuditRunner {
 public:
  AuditRunner(const AuditTask& task, lab::AuditState& state) : task_(task), state_(state) {
    vocabulary_ = static_cast<std::size_t>(task.spec->vocab_size);
    for (const auto& prompt : task.prompts) total_ += static_cast<std::int64_t>(prompt.size());
    total_ *= static_cast<std::int64_t>(task.choices.size());
  }

  Status run() {
    std::vector<std::int32_t> open;
    for (std::int32_t c = 0; c < static_cast<std::int32_t>(task_.choices.size()); ++c) {
      bool all = true;
      for (std::int32_t p = 0; p < static_cast<std::int32_t>(task_.prompts.size()); ++p) {
        if (state_.find(c, p) != nullptr) {
          done_ += static_cast<std::int64_t>(task_.prompts[static_cast<std::size_t>(p)].size());
        } else {
          all = false;
        }
      }
      if (!all) open.push_back(c);
    }
    if (open.empty()) return {};
    auto groups = group(open);
    if (!groups) return groups.error();
    const ChoicePlan reference = reference_choice();
    auto loaded = AuditSubject::load(*task_.checkpoint, task_.machine, reference);
    if (!loaded) return loaded.error();
    reference_ = std::move(*loaded);
    const std::size_t rows = static_cast<std::size_t>(std::min(task_.machine.chunk, task_.machine.max_tokens));
    reference_logits_.resize(rows * vocabulary_);
    choice_logits_.resize(rows * vocabulary_);
    for (const std::vector<std::int32_t>& members : *groups) {
      if (Status status = run_group(members); !status) return status;
    }
    return {};
  }

 private:
  const formats::Checkpoint& checkpoint_of(const ChoicePlan& choice) const {
    return choice.weights ? *task_.quantised.at(*choice.weights) : *task_.checkpoint;
  }

  // Choices that are run side by side.
  Expected<std::vector<std::vector<std::int32_t>>> group(const std::vector<std::int32_t>& open) const {
    const auto reference = AuditSubject::memory(*task_.checkpoint, *task_.spec, task_.machine, reference_choice());
    if (!reference) return reference.error();
    const std::int64_t logits = 2 * std::int64_t{std::min(task_.machine.chunk, task_.machine.max_tokens)} *
                                static_cast<std::int64_t>(vocabulary_ * sizeof(float));
    const auto budget = static_cast<std::int64_t>(kShareOfMemory * static_cast<double>(task_.memory_available));
    std::vector<std::vector<std::int32_t>> groups;
    std::int64_t used = 0;
    for (const std::int32_t index : open) {
      const ChoicePlan& choice = task_.choices[static_cast<std::size_t>(index)];
      const auto need = AuditSubject::memory(checkpoint_of(choice), *task_.spec, task_.machine, choice);
      if (!need) return need.error();
      if (*reference + logits + *need > task_.memory_available) {
        return make_error(ErrorCode::kResourceExhausted,
                          fmt::format("an audit holds the model twice: {} for the reference, {} for {}, {} for logits "
                                      "of --chunk {}; {} is free. A smaller "
                                      "--chunk or --context needs less",
                                      format_bytes(*reference), format_bytes(*need), choice.choice.name,
                                      format_bytes(logits), task_.machine.chunk, format_bytes(task_.memory_available)),
                          "MODEL");
      }
      if (groups.empty() || used + *need > budget) {
        groups.emplace_back();
        used = *reference + logits;
      }
      groups.back().push_back(index);
      used += *need;
    }
    return groups;
  }

  Status run_group(const std::vector<std::int32_t>& members) {
    running_.clear();
    for (const std::int32_t index : members) {
      const ChoicePlan& choice = task_.choices[static_cast<std::size_t>(index)];
      auto subject = AuditSubject::load(checkpoint_of(choice), task_.machine, choice);
      if (!subject) return subject.error();
      running_.push_back({index, std::move(*subject), {}, {}, false});
    }
    for (std::int32_t p = 0; p < static_cast<std::int32_t>(task_.prompts.size()); ++p) {
      bool any = false;
      for (Running& r : running_) {
        r.active = state_.find(r.index, p) == nullptr;
        r.cost = {};
        any = any || r.active;
      }
      if (!any) continue;
      const std::vector<std::int32_t>& prompt = task_.prompts[static_cast<std::size_t>(p)];
      if (Status status = run_prompt(prompt); !status) return status;
      if (Status status = run_greedy(prompt); !status) return status;
      for (Running& r : running_) {
        if (!r.active) continue;
        if (Status status = state_.append(r.index, p, std::move(r.cost)); !status) return status;
      }
    }
    return {};
  }

  Status check_stop() const {
    if (task_.stopped && task_.stopped())
      return make_error(ErrorCode::kCancelled, "stopped; the same command goes on where it was", "");
    return {};
  }

  Status run_prompt(std::span<const std::int32_t> prompt) {
    const auto n = static_cast<std::int32_t>(prompt.size());
    for (std::int32_t begin = 0; begin < n; begin += task_.machine.chunk) {
      if (Status status = check_stop(); !status) return status;
      const auto count = static_cast<std::size_t>(std::min(task_.machine.chunk, n - begin));
      const std::span<const std::int32_t> tokens = prompt.subspan(static_cast<std::size_t>(begin), count);
      const std::span<float> reference = std::span(reference_logits_).first(count * vocabulary_);
      if (Status status = reference_->step(tokens, begin, reference); !status) return status;
      for (Running& r : running_) {
        if (!r.active) continue;
        const std::span<float> choice = std::span(choice_logits_).first(count * vocabulary_);
        if (Status status = r.subject->step(tokens, begin, choice); !status) return status;
        compare(prompt, static_cast<std::size_t>(begin), count, r.cost.rows);
        const auto last = choice.last(vocabulary_);
        r.last.assign(last.begin(), last.end());
        done_ += static_cast<std::int64_t>(count);
        if (task_.progress) task_.progress(done_, total_);
      }
      const auto last = reference.last(vocabulary_);
      reference_last_.assign(last.begin(), last.end());
    }
    return {};
  }

  void compare(std::span<const std::int32_t> prompt, std::size_t begin, std::size_t count,
               std::vector<lab::PositionCost>& rows) {
    rows.resize(begin + count);
    task_.machine.pool->parallel(count, [&](std::size_t row, std::size_t) {
      const std::size_t next = begin + row + 1;
      rows[begin + row] = lab::compare_logits(std::span(reference_logits_).subspan(row * vocabulary_, vocabulary_),
                                              std::span(choice_logits_).subspan(row * vocabulary_, vocabulary_),
                                              next < prompt.size() ? std::optional(prompt[next]) : std::nullopt);
      rows[begin + row].position = static_cast<std::int32_t>(begin + row);
    });
  }

  // Both go on by their own best token. As long as these are equal they are the same text; a choice is done at the first that isn't.
  Status run_greedy(std::span<const std::int32_t> prompt) {
    const auto n = static_cast<std::int32_t>(prompt.size());
    const std::int32_t steps = std::min(task_.greedy_steps, task_.machine.max_tokens - n);
    std::vector<Running*> going;
    for (Running& r : running_) {
      if (r.active) going.push_back(&r);
    }
    for (std::int32_t step = 0; step < steps && !going.empty(); ++step) {
      if (Status status = check_stop(); !status) return status;
      const std::int32_t token = lab::best_token(reference_last_);
      const float margin = lab::best_margin(reference_last_);
      std::erase_if(going, [&](Running* r) {
        r->cost.greedy.steps = step + 1;
        if (lab::best_token(r->last) == token) return false;
        r->cost.greedy.first_change = step;
        r->cost.greedy.margin = margin;
        return true;
      });
      if (step + 1 == steps || going.empty()) break;
      if (Status status = reference_->step(std::span(&token, 1), n + step, reference_last_); !status) return status;
      for (Running* r : going) {
        if (Status status = r->subject->step(std::span(&token, 1), n + step, r->last); !status) return status;
      }
    }
    return {};
  }

  const AuditTask& task_;
  lab::AuditState& state_;
  std::size_t vocabulary_ = 0;
  std::int64_t done_ = 0, total_ = 0;
  std::unique_ptr<AuditSubject> reference_;
  std::vector<Running> running_;
  std::vector<float> reference_logits_, choice_logits_;  // [chunk][vocabulary]
  std::vector<float> reference_last_;
};

}  // namespace

Status run_audit(const AuditTask& task, lab::AuditState& state) {
  return AuditRunner(task, state).run();
}

}  // namespace sterling::cli
