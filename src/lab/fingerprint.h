// What tells one checkpoint from another in a manifest: a SHA-256 over its configuration, every tensor's name, type and shape, and the
// first bytes of a bounded number of tensors spread over the files. Cheap enough for every start; not a hash of all weights, so a
// fine-tune that leaves the sampled bytes alone is not told apart.
#pragma once

#include <string>

#include "formats/checkpoint.h"

namespace sterling::lab {

// 64 hexadecimal digits; independent of where the checkpoint lies and of how it is sharded.
std::string checkpoint_fingerprint(const formats::Checkpoint& checkpoint);

}  // namespace sterling::lab
