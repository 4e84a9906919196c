// The KV half of the resolver: which types K and V get, which scales, and what is to be said about it.
#pragma once

#include "plan/precision.h"

namespace sterling::plan {

// What became of the wish for keys or for values.
struct KvSide {
  KvType type = KvType::kBf16;
  Requested requested;  // the type's name as asked: "bf16" for auto, "checkpoint" where the checkpoint states nothing
  std::string flag;     // to be named in messages: "--kv-cache-dtype", "--kv-cache-dtype-k"
  std::string reason;
  std::string granularity;   // of scales: "tensor", "head", "token and head", "-"
  std::string scale_source;  // "checkpoint", "file kv.json", "1.0, accepted", "beside each token", "-"
};

struct KvDecision {
  KvSide k;
  KvSide v;
};

// Fills the KV fields of `precision`.
Expected<KvDecision> resolve_kv(const PrecisionInput& input, Precision& precision);

// "bf16, fp32, fp8_e4m3": the types that a backend offers.
std::string offered_kv_types(const BackendCapabilities& backend);

}  // namespace sterling::plan
