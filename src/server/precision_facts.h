// What the server shows of its precision beside the manifest itself: in a response header, /ready and /metrics.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace sterling::server {

// What happened to the elements of one layer's K or V on their way into the cache, since the start.
struct KvElements {
  std::int32_t layer = 0;  // of the model
  bool value = false;      // V, else K
  std::int64_t written = 0;
  std::int64_t clipped = 0;
  std::int64_t underflowed = 0;
  std::int64_t non_finite = 0;
};

struct PrecisionFacts {
  std::string hash;            // the manifest's; empty: none of this is shown
  std::string kv_cache_dtype;  // "bf16"
  std::string kv_scales;       // "not_applicable", "from_file", "defaulted_1.0", …
  std::string compute;
  std::string isa;
  bool unscaled_kv = false;  // an FP8 cache runs with scales of 1 that nobody measured, as accepted
  std::function<std::vector<KvElements>()> elements;  // may be empty
};

}  // namespace sterling::server
