// The one resolver of precision: from what a model is, what its checkpoint wishes and holds, what the machine can do and what the user asked,
// to one table that says for every role what is stored, loaded, computed and summed in which type, at whose request and why. Everything
// that allocates, reports or proves precision takes it from here; nothing decides it anywhere else.
//
// Pure. There is no fallback: a wish that can't be met is an error that lists what can. Metadata is a wish of the checkpoint's author,
// shown in the table and obeyed only under `--kv-cache-dtype checkpoint`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "plan/kv_format.h"
#include "spec/model_spec.h"

namespace sterling::plan {

// One thing the user may ask for, as written, and by what: "default", "flag --kv-cache-dtype", "environment STERLING_KV_CACHE_DTYPE",
// "file sterling.conf:3". Choices arrive in their canonical spelling.
struct Requested {
  std::string value;
  std::string by = "default";

  bool by_user() const { return by != "default"; }
};

// `kv`: "auto" (means bf16), a KvType's name, or "checkpoint". `kv_k` and `kv_v` override it for keys or values; empty: not set.
struct PrecisionWishes {
  Requested compute{"bf16", "default"};
  Requested kv{"auto", "default"};
  Requested kv_k;
  Requested kv_v;
  bool accept_unscaled_kv = false;
  bool strict = false;  // any requested type that is not the effective one is an error
};

// What the checkpoint's metadata says of the KV cache, place by place (formats/kv_wish.h).
struct MetadataWish {
  struct Place {
    std::string where;                // "hf_quant_config.json quantization.kv_cache_quant_algo"
    std::optional<std::string> wish;  // canonical, or silent
    std::string text;                 // as it stands there
  };
  std::vector<Place> places;
  std::optional<std::string> wish;  // the first that speaks
  bool disagree = false;
  bool modelopt = false;  // made by ModelOpt, whose cast recipe (amax pinned to 448) writes no scales and means 1.0
};

// K and V scales that lie at hand, from the checkpoint's tensors or from a file.
struct ScalesFound {
  KvScales scales;                   // for each full-attention layer its values; empty where none was found
  std::string source;                // "checkpoint", "file kv.json"; empty: nothing was looked for
  std::string looked_for;            // names and places, for the message that says they are missing
  std::vector<std::string> missing;  // "layer 3 K", in order
  std::int64_t expected = 0;         // two per full-attention layer
  std::int64_t found() const { return expected - static_cast<std::int64_t>(missing.size()); }
};

// How weights of one group lie in the checkpoint.
struct StoredWeights {
  std::string group;   // "attention", "routed_experts", …
  std::string format;  // "bf16", "nvfp4", "fp8_e4m3_block", "q4_1", …
  std::int64_t tensors = 0;
  std::int64_t bytes = 0;
};

// What a backend can do.
struct BackendCapabilities {
  std::string name;  // "cpu, avx512bf16"
  std::vector<std::string> computes;
  std::vector<KvType> kv_types;
  // Weight formats multiplied from their codes; every other format is decoded exactly to FP32 at load.
  std::vector<std::string> packed_formats;
};

struct PrecisionInput {
  const ModelSpec* spec = nullptr;
  MetadataWish metadata;
  ScalesFound scales;
  std::vector<StoredWeights> weights;
  std::optional<std::int64_t> declared_activation_bits;  // the checkpoint wishes for quantised activations (W4A4, W8A8)
  BackendCapabilities backend;
  PrecisionWishes wishes;
};

// One role in one group of layers. Texts are for people and programs alike; "-" where a column does not apply.
struct PrecisionRow {
  std::string role;         // "weights.attention", "kv.keys", "state.recurrent", "logits", …
  std::string layers;       // "0-59", "3,7,11", "all"
  std::string stored;       // in the checkpoint (weights) or as held between steps (everything else)
  std::string loaded;       // as held in memory
  std::string compute;      // what products multiply
  std::string accumulate;   // what sums are kept in
  std::string granularity;  // of scales: "tensor", "head", "token and head", "block 16", …
  std::string scale_source;
  std::string requested;
  std::string requested_by;
  std::string effective;
  std::string reason;
  std::int64_t bytes = 0;       // weights: in the checkpoint; KV: per token; state: per sequence; else 0
  std::string bytes_per = "-";  // "checkpoint", "token", "sequence"
};

// Where K/V scales come from, in the words of the ready line and of other programs.
enum class KvScaleState { kNotApplicable, kFromCheckpoint, kFromFile, kDefaultedToOne, kPerToken };
std::string_view kv_scale_state_name(
    KvScaleState state);  // "not_applicable", "from_checkpoint", "from_file", "defaulted_1.0", "per_token"

struct Precision {
  std::string compute;  // "bf16" or "fp32"
  KvFormat kv;
  KvScales kv_scales;  // what the pool gets: complete (1 where accepted), or empty where no type in use needs scales
  KvScaleState kv_scale_state = KvScaleState::kNotApplicable;
  std::string kv_scale_source;
  bool unscaled_accepted = false;  // some layer runs with a scale of 1 that nobody measured
  std::vector<std::string> unscaled_layers;
  std::string
      metadata_note;  // the line that says what the metadata wished and what became of it; empty: it wished nothing
  std::vector<std::string> warnings;
  std::vector<PrecisionRow> rows;
};

// kInvalidArgument: a wish that is not offered, sources that disagree under `checkpoint`, scales that are missing or all 1 without acceptance.
// kVerification: a deviation under `strict`. kUnsupported: a type that this backend can't do. `where` is the flag.
Expected<Precision> resolve_precision(const PrecisionInput& input);

// The sentence that operators of other engines know and grep for.
inline constexpr std::string_view kUnscaledKvSentence =
    "Using FP8 KV cache but no scaling factors provided. Defaulting to scaling factors of 1.0. This may lead to less "
    "accurate results!";

}  // namespace sterling::plan
