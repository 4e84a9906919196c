// The families of this folder; registry.cc lists them.
#pragma once

#include "model/architecture.h"

namespace sterling::model {

extern const Architecture kLlama;
extern const Architecture kQwen2;
extern const Architecture kQwen3;
extern const Architecture kQwen35Text;
extern const Architecture kQwen35;
extern const Architecture kQwen3Moe;
extern const Architecture kQwen3Next;
extern const Architecture kQwen35MoeText;
extern const Architecture kQwen35Moe;
extern const Architecture kMixtral;

}  // namespace sterling::model
