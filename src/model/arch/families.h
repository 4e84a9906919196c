// The families of this folder; registry.cc lists them.
#pragma once

#include "model/architecture.h"

namespace sterling::model {

extern const Architecture kLlama;
extern const Architecture kQwen2;
extern const Architecture kQwen3;
extern const Architecture kQwen35Text;
extern const Architecture kQwen35;

}  // namespace sterling::model
