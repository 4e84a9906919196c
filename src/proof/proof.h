// Proof, before a server says ready and again on request, that memory holds what the precision table says. A canary prompt runs through the
// model in a prefill, a second chunk and single tokens; then, through the pools and pointers that the kernels use:
//
//   kv.size   the pool's type is the declared one, and its bytes are exactly those of elements and scales
//   kv.write  every stored K and V element is THE code of the FP32 value that the layer produced (own encoder from the layout of bits, own idea of
//             the scale); the largest rounding error fits the type and excludes the next narrower one; later steps leave earlier tokens alone
//   kv.read   attention of chosen rows, in double, from the decoded bytes, is what the kernel returned, within a derived bound
//   kv.flip   with the sign of one stored element flipped, the predicted change appears; flipped back, the first bits return
//   state     a Gated DeltaNet state, in double from the layer's inputs, is what the slot holds, more exactly than BF16 or FP16 could; the
//             convolution window holds the last inputs, bit for bit
//   weights   blocks of every packed matrix, multiplied with one-hot inputs by the kernel that runs them, are the file's values
//   logits    finite
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <boost/json.hpp>

#include "base/status.h"
#include "model/model.h"
#include "plan/precision.h"

namespace sterling::proof {

// Blocks and a slot that nobody else uses. Their contents are overwritten.
struct ProofSpace {
  std::span<const std::int32_t> blocks;
  std::int32_t state_slot = -1;  // -1 where the model has no recurrent layers
};

// Blocks that the canary takes, fewer where sequences are shorter than it.
std::int32_t blocks_needed(const model::ExecutorLimits& limits);

struct Finding {
  std::string check;   // "kv.write", …
  std::string detail;  // what was compared and measured; of a failure: where, expected, found
  bool passed = false;
};

struct ProofReport {
  std::vector<Finding> findings;

  bool passed() const;
};

// Errors are those of running the model at all; whatever does not match is a finding.
Expected<ProofReport> prove(model::Model& model, const plan::Precision& precision, const ProofSpace& space);

// {"passed", "checks": [{"check", "passed", "detail"}]}
boost::json::object proof_json(const ProofReport& report);

}  // namespace sterling::proof
