// K/V scales of a model's full-attention layers from the values that prompts produce, and the report on them.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <boost/json.hpp>

#include "base/status.h"
#include "formats/kv_scales_file.h"
#include "lab/kv_statistics.h"
#include "plan/kv_format.h"
#include "spec/model_spec.h"

namespace sterling::lab {

struct CalibrateOptions {
  plan::KvType type = plan::KvType::kFp8E4m3;  // or kFp8E5m2
  ScaleMethod method = ScaleMethod::kMse;
  double percentile = 99.99;
  double margin = 1.0;
  bool per_head = false;
};

// One scale: of a layer's K or V, or of one of its heads.
struct CalibratedUnit {
  std::int64_t head = -1;  // -1: the whole tensor
  ScaleCost chosen, unit;  // at the chosen scale, and at 1.0
  float amax = 0.0F;
  float p9999 = 0.0F;  // the 99.99th percentile
  double rms = 0.0;
};

struct WorstChannel {
  std::int64_t head = 0;
  std::int64_t dim = 0;
  float amax = 0.0F;
  double ratio = 0.0;  // over the median channel's
};

struct CalibratedSide {
  std::vector<CalibratedUnit> units;
  std::vector<WorstChannel> worst;                    // at most three
  std::vector<std::pair<int, std::int64_t>> octaves;  // (e, values with 2^e <= |x| < 2^(e+1)), without empty ends
  std::int64_t zeros = 0;
};

struct CalibratedLayer {
  std::int64_t layer = 0;
  CalibratedSide k, v;
};

// Collects over prompts. Feed every prompt to first(), call choose(), feed the same prompts to second(), call finish().
class Calibration {
 public:
  Calibration(const ModelSpec& spec, const CalibrateOptions& options);

  // K or V of full-attention layer `index` (in their order), [kv_heads][tokens][head_dim], not rounded. kCorrupt: a value that is not finite.
  Status first(std::int64_t index, bool value, std::span<const float> values);
  void choose();
  void second(std::int64_t index, bool value, std::span<const float> values);
  std::vector<CalibratedLayer> finish();

 private:
  struct Side {
    SideMagnitudes magnitudes;
    std::vector<std::vector<ScaleCost>> candidates;  // by unit; the last one is 1.0
  };
  Side& side(std::int64_t index, bool value) { return sides_[static_cast<std::size_t>(2 * index + (value ? 1 : 0))]; }
  CalibratedSide describe(const Side& side) const;

  const ModelSpec& spec_;
  CalibrateOptions options_;
  std::vector<std::int64_t> layers_;  // of the model
  std::vector<Side> sides_;
};

// The layers' scales as scale files hold them.
std::map<std::int64_t, formats::KvScalesFile::Layer> calibrated_scales(const std::vector<CalibratedLayer>& layers);

boost::json::array calibration_json(const std::vector<CalibratedLayer>& layers);
// For people: a row per scale, worst channels, histograms.
std::string calibration_text(const std::vector<CalibratedLayer>& layers);

}  // namespace sterling::lab
