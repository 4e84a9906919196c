// Findings that need the model's own reading of a checkpoint: what its family would refuse, and where metadata and tensors contradict each other.
// docs/inspect.md lists every code.
#pragma once

#include <vector>

#include "formats/checkpoint.h"
#include "lab/inspect.h"
#include "model/model.h"

namespace sterling::lab {

// Faults that stop loading, as errors under their own codes.
void lint_problems(const model::Examination& examination, std::vector<LintFinding>& lint);

// Metadata against tensors: patterns that match nothing, modules quantised by one and not by the other, heads and routers in few bits, scales that are all 1, A_log
// below FP32, a wished FP8 K without QK-norm, quantised input activations.
void lint_quantisation(const formats::Checkpoint& checkpoint, const model::Examination& examination,
                       const KvCacheFacts& kv, std::vector<LintFinding>& lint);

// Token ids of tokenizer.json against vocab_size; tokenizer and chat template missing.
void lint_text(const formats::Checkpoint& checkpoint, const ModelDimensions& dimensions,
               std::vector<LintFinding>& lint);

}  // namespace sterling::lab
