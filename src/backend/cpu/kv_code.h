// The kernels' word for a KV type.
#pragma once

#include "kernels/contract.h"
#include "plan/kv_format.h"

namespace sterling::backend {

constexpr kernels::KvCode kv_code(plan::KvType type) {
  switch (type) {
    case plan::KvType::kBf16: return kernels::KvCode::kBf16;
    case plan::KvType::kFp32: return kernels::KvCode::kFp32;
    case plan::KvType::kFp8E4m3: return kernels::KvCode::kE4m3;
    case plan::KvType::kFp8E5m2: return kernels::KvCode::kE5m2;
    case plan::KvType::kFp8E4m3Token: return kernels::KvCode::kE4m3Token;
  }
  return kernels::KvCode::kBf16;
}

}  // namespace sterling::backend
