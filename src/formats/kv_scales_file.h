// K and V scales in a file of their own, as `sterling calibrate` writes them and `--kv-scales FILE` reads them. Three shapes:
//
// Sterling's own:
//   {"format": "sterling-kv-scales", "version": 1, "granularity": "tensor" | "head",
//    "layers": [{"layer": 3, "k": [0.031], "v": [0.027]}, …], …}          further keys (model, how it was made) are kept by nobody here
// vLLM's and SGLang's (their `--quantization-param-path`): one scale per tensor-parallel rank and layer, used for K and V alike:
//   {"model_type": "qwen3_5", "kv_cache": {"dtype": "float8_e4m3fn", "scaling_factor": {"0": {"3": 0.031, …}, …}}}
//   With several ranks, rank r of n holds heads r * kv_heads / n …: per-head scales follow. A file without model_type is accepted.
// vLLM's and SGLang's form with K and V apart is the checkpoint tensors themselves (model/kv_scales.h).
//
// Input is hostile: every field is checked, kCorrupt names file and JSON path.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json.hpp>

#include "base/status.h"

namespace sterling::formats {

struct KvScalesFile {
  // Values of one layer: one for the whole tensor, or (own form) one per KV head.
  struct Layer {
    std::vector<float> k;
    std::vector<float> v;
  };
  std::string path;
  std::string shape;                     // "sterling", "vllm"
  std::map<std::int64_t, Layer> layers;  // by layer of the model
  // vLLM's form with more than one rank: by rank, then layer. Empty otherwise.
  std::vector<std::map<std::int64_t, float>> ranks;
};

Expected<KvScalesFile> read_kv_scales_file(const std::string& path);
// `name` is used in messages.
Expected<KvScalesFile> parse_kv_scales(std::string_view text, const std::string& name);

// Documents to be written. `about` is merged into the own form's top level (model, prompts, how it was measured).
boost::json::object kv_scales_json(const std::map<std::int64_t, KvScalesFile::Layer>& layers,
                                   const boost::json::object& about);
// One value per layer: the larger of K's and V's largest, since that form has one for both. `layer_count`: layers without a KV cache get
// 1, because both engines refuse a file that leaves one out. `tp`: the same numbers for each rank.
boost::json::object kv_scales_json_vllm(const std::map<std::int64_t, KvScalesFile::Layer>& layers,
                                        std::int64_t layer_count, std::int64_t tp, std::string_view model_type);

}  // namespace sterling::formats
