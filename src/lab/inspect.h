// What a checkpoint contains, from its headers and configuration alone: behind `sterling inspect`. No weight is read; the only
// tensor data touched are scales, those of blocks within a budget (lab/inspect_scales.h).
//
// Works for every checkpoint that can be opened, also of families and stored formats that this version can't run: such a
// model has `supported` false with the reason, and whatever its files say. What they don't say is empty (null in JSON), never a
// guess.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <boost/json.hpp>

#include "base/status.h"
#include "formats/checkpoint.h"
#include "formats/kv_wish.h"

namespace sterling::lab {

enum class LintSeverity { kError, kWarning, kNote };

// `code` is stable; `where` names a file, key or tensor and may be empty.
struct LintFinding {
  LintSeverity severity = LintSeverity::kNote;
  std::string code;
  std::string where;
  std::string message;
};

// Sizes as the configuration has them. Counts that a model can lack (experts, MTP) are 0 where the configuration has no key.
struct ModelDimensions {
  std::string architecture;
  std::string model_type;
  std::optional<std::int64_t> layers, full_attention_layers, linear_attention_layers, sliding_attention_layers;
  std::optional<std::int64_t> hidden_size, vocab_size, intermediate_size;
  std::optional<std::int64_t> heads, kv_heads, head_dim;
  std::optional<std::int64_t> experts, experts_per_token, mtp_layers, max_position_embeddings;
};

// One row per group and stored format. Scale tensors count with the weights that they belong to, so that tensors and bytes add
// up to the files' own.
struct WeightGroup {
  std::string group;                        // "attention", "routed_experts", …
  std::string format;                       // "bf16", "nvfp4", "fp8_e4m3_block", "q4_1", …
  std::optional<std::int64_t> tensors = 0;  // empty where only the configuration is there and does not say
  std::optional<std::int64_t> parameters;   // empty: a packing that this version can't count
  std::int64_t bytes = 0;
};

struct ParameterCounts {
  std::optional<std::int64_t> total, text, mtp, vision;
  std::optional<std::int64_t> active_per_token;  // text, routed experts counted at experts_per_token / experts
};

struct ByteCounts {
  std::int64_t total = 0, text = 0, mtp = 0, vision = 0;
};

struct KvScales {
  std::int64_t expected = 0;          // K and V of every full-attention layer, if the wish needs scales
  std::optional<std::int64_t> found;  // empty without weights
  std::optional<bool> all_one;        // empty when none was found
  std::optional<double> min, max;     // of the finite ones
};

struct KvCacheFacts {
  std::optional<std::string> wish;  // canonical: "fp8_e4m3", "nvfp4", …
  std::vector<formats::KvWishSource> sources;
  bool sources_disagree = false;
  KvScales scales;
  std::string effective_by_default = "bf16";  // metadata is a wish, shown and not obeyed
};

struct KvBytesPerToken {
  std::int64_t bf16 = 0, fp8_e4m3 = 0, fp32 = 0;
};

struct Inspection {
  std::string path;
  std::string format;  // "safetensors", "gguf", "config-only"
  bool weights_present = false;
  bool supported = false;
  std::optional<std::string> unsupported_reason;
  // Would the model load? Agrees with model::Model::load but for faults of content that headers can't show (a NaN among weights, or among block scales beyond the budget).
  bool loadable = false;
  std::optional<std::string> load_error;
  ModelDimensions dimensions;
  ParameterCounts parameters;
  // Without weights: as the configuration and the quantisation metadata announce them; empty where those don't say enough.
  std::optional<ByteCounts> bytes;
  std::optional<std::vector<WeightGroup>> weights;
  KvCacheFacts kv_cache;
  std::optional<KvBytesPerToken> kv_bytes_per_token;
  std::optional<std::int64_t> state_bytes_per_sequence;
  std::vector<LintFinding> lint;
};

// Opens and inspects. Errors are those of Checkpoint::open.
Expected<Inspection> inspect(const std::filesystem::path& path);
Inspection inspect(const formats::Checkpoint& checkpoint);

// The document of `sterling inspect --json`.
boost::json::object inspection_json(const Inspection& inspection);

std::string_view lint_severity_name(LintSeverity severity);  // "error", "warning", "note"

}  // namespace sterling::lab
