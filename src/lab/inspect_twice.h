// Parts of a model that a checkpoint stores twice, under two names or in two layouts: one is read, and nothing says that the other is equal.
#pragma once

#include <vector>

#include "formats/checkpoint.h"
#include "lab/inspect.h"
#include "model/model.h"

namespace sterling::lab {

void lint_stored_twice(const formats::Checkpoint& checkpoint, const model::Examination& examination,
                       std::vector<LintFinding>& lint);

}  // namespace sterling::lab
