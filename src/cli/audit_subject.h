// A loaded model under `sterling audit`: one sequence, chunk by chunk, all logits.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/status.h"
#include "cli/audit_choices.h"
#include "formats/checkpoint.h"
#include "kernels/contract.h"
#include "model/model.h"
#include "platform/thread_pool.h"

namespace sterling::cli {

// Shared by all subjects of an audit; must outlive them.
struct AuditMachine {
  const kernels::KernelTable* kernels = nullptr;
  platform::ThreadPool* pool = nullptr;
  std::int32_t max_tokens = 0;  // of a sequence
  std::int32_t chunk = 0;       // tokens of a step at most
};

class AuditSubject {
 public:
  // What load() will take at most, in bytes, from headers.
  static Expected<std::int64_t> memory(const formats::Checkpoint& checkpoint, const ModelSpec& spec,
                                       const AuditMachine& machine, const ChoicePlan& choice);
  static Expected<std::unique_ptr<AuditSubject>> load(const formats::Checkpoint& checkpoint,
                                                      const AuditMachine& machine, const ChoicePlan& choice);

  // Tokens [start, start + tokens.size()) of the sequence, everything before it having been given; start 0 begins anew. `logits`: all rows.
  Status step(std::span<const std::int32_t> tokens, std::int32_t start, std::span<float> logits);

 private:
  AuditSubject() = default;

  std::unique_ptr<backend::Backend> backend_;
  std::unique_ptr<model::Model> model_;  // before its backend
  std::vector<std::int32_t> block_table_;
};

}  // namespace sterling::cli
