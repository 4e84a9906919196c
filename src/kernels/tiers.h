// The tiers' one exported symbol each. Baseline code may call these on any CPU: they only return an address. Calling through the table
// needs the instructions (dispatch.h checks).
#pragma once

#include "kernels/contract.h"

namespace sterling::kernels {

const KernelTable* scalar_table();
#if defined(__x86_64__)
const KernelTable* avx2_table();
const KernelTable* avx512_table();
const KernelTable* avx512bf16_table();
#endif

}  // namespace sterling::kernels
