// `sterling quantize`: writes a checkpoint again with FP8 or NVFP4 weights, rounded to the nearest codes. Nothing is calibrated: activations' scales
// need data, so an NVFP4 result is weight-only (W4A16_NVFP4), FP8 per tensor carries input_scale 1 (E4M3's own range), and FP8 per block leaves activations
// to the engine.
//
// Streams: memory holds the rows at work, never a whole tensor. The result is a function of the weights and options alone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "formats/checkpoint.h"
#include "lab/quant_layout.h"
#include "platform/thread_pool.h"
#include "quant/encode.h"

namespace sterling::lab {

struct QuantizeOptions {
  WeightTarget target = WeightTarget::kNvfp4;            // not kBf16
  quant::ScaleSearch search = quant::ScaleSearch::kMax;  // kMse: NVFP4 alone
  std::vector<std::string> excludes;                     // patterns on module names
  std::filesystem::path out;
  std::int64_t shard_bytes = std::int64_t{5} << 30;
  std::string version;                                                  // of the producer
  std::function<void(std::int64_t done, std::int64_t total)> progress;  // may be empty; from the calling thread
  std::function<bool()> stopped;                                        // may be empty
};

struct QuantizedModule {
  MatrixModule module;
  quant::QuantError error;
};

struct QuantizeReport {
  std::string out;
  std::vector<QuantizedModule> modules;  // in the order written
  std::vector<std::string> left;         // matrices of the model in high precision
  std::int64_t source_bytes = 0;         // of tensors
  std::int64_t bytes = 0;
  std::vector<std::string> files;
};

// `source` is a folder of safetensors that loads and is not quantised. Fused 3-D experts become single ones, as ModelOpt writes them; tokenizer and
// other small files are copied. After an error or a stop (kCancelled) nothing is left.
Expected<QuantizeReport> quantize(const formats::Checkpoint& source, const QuantizeOptions& options,
                                  platform::ThreadPool& pool);

}  // namespace sterling::lab
