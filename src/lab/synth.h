// `sterling synth`: a checkpoint with random weights in the published layout, for benchmarks and capacity tests.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "lab/synth_plan.h"
#include "platform/thread_pool.h"

namespace sterling::lab {

struct SynthOptions {
  std::filesystem::path config;  // a config.json, or the folder of one
  std::filesystem::path out;     // new or empty
  SynthRequest request;
  std::uint64_t seed = 0;
  std::int64_t shard_bytes = std::int64_t{5} << 30;
  std::function<void(std::int64_t done, std::int64_t total)> progress;  // may be empty; from the calling thread
  std::function<bool()> stopped;                                        // may be empty
};

struct SynthReport {
  std::string out;
  std::string architecture;
  std::int64_t layers = 0;
  std::int64_t tensors = 0;
  std::int64_t quantised_modules = 0;
  std::int64_t bytes = 0;
  std::vector<std::string> files;
};

// The files depend on configuration, request, seed and shard size alone. After an error or a stop (kCancelled) nothing of them is left.
Expected<SynthReport> synthesize(const SynthOptions& options, platform::ThreadPool& pool);

}  // namespace sterling::lab
