// Reference vectors of one model, read from a golden.safetensors file (made by tools/golden/make.py; that folder's README.md tells how).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace sterling::lab {

// A tensor of the reference. F32 entries are widened, which is exact.
struct GoldenTensor {
  std::vector<std::int64_t> shape;
  std::vector<double> values;  // row-major

  // Values of one index of the first dimension.
  std::size_t slice_size() const {
    return shape.empty() || shape[0] == 0 ? 0 : values.size() / static_cast<std::size_t>(shape[0]);
  }
};

// One recorded quantity: the truth, and, where it was recorded, Hugging Face's float32 run of the same.
struct GoldenEntry {
  GoldenTensor wide;                   // float64
  std::optional<GoldenTensor> narrow;  // float32, the same shape
};

// Layer by layer, for the one prompt whose internals were recorded. Shapes: n = prompt length.
struct GoldenInternals {
  GoldenEntry hidden;  // [layers + 2, n, hidden] embeddings, after each layer, after the final norm
  std::vector<std::int32_t>
      router_experts;  // [layers with experts, n, k] most probable first; empty where not recorded
  std::optional<GoldenEntry> router_weights;  // [layers with experts, n, k]
  std::optional<GoldenEntry> mixer, mlp;      // [layers, n, hidden] block outputs before the residual addition
  std::optional<GoldenEntry> k, v;            // [full-attention layers, kv_heads, n, head_dim]
  std::optional<GoldenEntry> gdn_state;       // [GDN layers, value_heads, key_dim, value_dim]
  // Sets with quantised K and V: the stored codes [full-attention layers, kv_heads, n, head_dim], and how far quantising K and V moved each row of
  // `hidden`. Empty otherwise.
  std::vector<std::byte> k_codes, v_codes;
  std::vector<double> hidden_shift;
  std::optional<GoldenEntry>
      gdn_conv;  // [GDN layers, channels, kernel] last raw inputs of the convolution, oldest first
};

struct GoldenPrompt {
  std::string name;                     // "p17"
  std::vector<std::int32_t> tokens;     // [n]
  std::vector<std::int32_t> positions;  // [m], where logits were recorded
  GoldenEntry logits;                   // [m, vocab]
  std::vector<std::int32_t> greedy_tokens;
  std::vector<double> greedy_margins;  // largest minus second largest logit at each step
  std::optional<GoldenInternals> internals;
  // Sets with quantised K and V: how far quantising them moved the logits, largest |this set - kv_none|.
  double quantisation_shift = 0.0;
  // … and the distance of Hugging Face's float32 run in kv_none: in this set one code that falls otherwise can outweigh all roundings.
  double plain_distance = 0.0;
};

struct GoldenData {
  std::string file;
  std::vector<GoldenPrompt> prompts;  // by length
  bool quantised_kv = false;          // K and V pass through FP8: discontinuous, see golden_bounds.h
};

// Sets in a file: "" for one without groups, else "kv_none", "kv_scaled", …
Expected<std::vector<std::string>> golden_groups(const std::filesystem::path& path);

// `path`: the golden.safetensors file. `group` selects a set in files that hold several ("kv_none"); empty otherwise. Checks that what belongs together has fitting
// shapes, and that values are finite. kNotFound, kCorrupt (names the entry), kInvalidArgument (a group that is not there).
Expected<GoldenData> load_golden(const std::filesystem::path& path, std::string_view group = {});

}  // namespace sterling::lab
