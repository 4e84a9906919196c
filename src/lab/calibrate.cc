#include "lab/calibrate.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace sterling::lab {
namespace {

constexpr std::size_t kWorstChannels = 3;

std::vector<WorstChannel> worst_channels(const SideMagnitudes& magnitudes, std::int64_t head_dim) {
  std::vector<float> sorted = magnitudes.channels;
  std::sort(sorted.begin(), sorted.end());
  const double median = sorted.empty() ? 0.0 : static_cast<double>(sorted[sorted.size() / 2]);
  std::vector<std::size_t> order(magnitudes.channels.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return magnitudes.channels[a] > magnitudes.channels[b]; });
  std::vector<WorstChannel> worst;
  for (std::size_t i = 0; i < std::min(kWorstChannels, order.size()); ++i) {
    const float amax = magnitudes.channels[order[i]];
    worst.push_back({static_cast<std::int64_t>(order[i]) / head_dim, static_cast<std::int64_t>(order[i]) % head_dim,
                     amax, median > 0.0 ? static_cast<double>(amax) / median : 0.0});
  }
  return worst;
}

MagnitudeHistogram whole(const SideMagnitudes& magnitudes) {
  MagnitudeHistogram all;
  for (const MagnitudeHistogram& head : magnitudes.heads) all.merge(head);
  return all;
}

const ScaleCost& cheapest(const std::vector<ScaleCost>& candidates) {
  return *std::min_element(candidates.begin(), candidates.end() - 1,
                           [](const ScaleCost& a, const ScaleCost& b) { return a.squared_error < b.squared_error; });
}

double share(std::int64_t part, std::int64_t all) {
  return all > 0 ? static_cast<double>(part) / static_cast<double>(all) : 0.0;
}

boost::json::object cost_json(const ScaleCost& cost) {
  return {{"scale", static_cast<double>(cost.scale)},
          {"relative_mse", cost.relative_error()},
          {"clipped", share(cost.clipped, cost.count)},
          {"underflowed", share(cost.underflowed, cost.count)}};
}

boost::json::object side_json(const CalibratedSide& side) {
  boost::json::array units;
  for (const CalibratedUnit& unit : side.units) {
    boost::json::object object{{"amax", static_cast<double>(unit.amax)},
                               {"percentile_99_99", static_cast<double>(unit.p9999)},
                               {"rms", unit.rms},
                               {"chosen", cost_json(unit.chosen)},
                               {"at_1.0", cost_json(unit.unit)}};
    if (unit.head >= 0) object["head"] = unit.head;
    units.push_back(std::move(object));
  }
  boost::json::array worst;
  for (const WorstChannel& channel : side.worst) {
    worst.push_back(boost::json::object{{"head", channel.head},
                                        {"dim", channel.dim},
                                        {"amax", static_cast<double>(channel.amax)},
                                        {"ratio_to_median", channel.ratio}});
  }
  boost::json::array octaves;
  for (const auto& [octave, count] : side.octaves) octaves.push_back(boost::json::array{octave, count});
  return {{"scales", std::move(units)},
          {"worst_channels", std::move(worst)},
          {"log2_histogram", std::move(octaves)},
          {"zeros", side.zeros}};
}

// Eight heights of a bar for a histogram on one line.
std::string sparkline(const CalibratedSide& side) {
  static constexpr const char* kBars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  std::int64_t most = 1;
  for (const auto& [octave, count] : side.octaves) most = std::max(most, count);
  std::string text;
  for (const auto& [octave, count] : side.octaves) {
    text += count == 0 ? " " : kBars[std::min<std::int64_t>(7, count * 8 / most)];
  }
  return text;
}

std::string side_text(std::int64_t layer, std::string_view name, const CalibratedSide& side) {
  std::string text;
  for (const CalibratedUnit& unit : side.units) {
    text += fmt::format(
        "{:>5} {:<2}{:>5} {:>11.4g} {:>11.4g} {:>12.5g} {:>10.2e} {:>8.3f}% {:>10.2e} {:>8.3f}% {:>8.3f}%\n", layer,
        name, unit.head < 0 ? std::string("all") : std::to_string(unit.head), unit.amax, unit.p9999, unit.chosen.scale,
        unit.chosen.relative_error(), 100.0 * share(unit.chosen.clipped, unit.chosen.count), unit.unit.relative_error(),
        100.0 * share(unit.unit.clipped, unit.unit.count), 100.0 * share(unit.unit.underflowed, unit.unit.count));
  }
  return text;
}

}  // namespace

Calibration::Calibration(const ModelSpec& spec, const CalibrateOptions& options) : spec_(spec), options_(options) {
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    if (spec.layers[i] == LayerKind::kFullAttention) layers_.push_back(static_cast<std::int64_t>(i));
  }
  sides_.resize(2 * layers_.size());
  const auto heads = static_cast<std::size_t>(spec.attention.kv_heads);
  for (Side& side : sides_) {
    side.magnitudes.heads.resize(heads);
    side.magnitudes.channels.resize(heads * static_cast<std::size_t>(spec.attention.head_dim));
  }
}

Status Calibration::first(std::int64_t index, bool value, std::span<const float> values) {
  SideMagnitudes& magnitudes = side(index, value).magnitudes;
  add_magnitudes(values, spec_.attention.head_dim, magnitudes);
  if (magnitudes.non_finite == 0) return {};
  return make_error(ErrorCode::kCorrupt,
                    fmt::format("layer {}: {} of {}'s elements are not finite; nothing can be calibrated on that",
                                layers_[static_cast<std::size_t>(index)], magnitudes.non_finite, value ? "V" : "K"));
}

void Calibration::choose() {
  for (Side& side : sides_) {
    std::vector<MagnitudeHistogram> units;
    if (options_.per_head) {
      units = side.magnitudes.heads;
    } else {
      units.push_back(whole(side.magnitudes));
    }
    for (const MagnitudeHistogram& unit : units) {
      std::vector<ScaleCost>& candidates = side.candidates.emplace_back();
      for (const float scale :
           candidate_scales(options_.type, options_.method, options_.percentile, options_.margin, unit)) {
        candidates.push_back({.scale = scale});
      }
      candidates.push_back({.scale = 1.0F});
    }
  }
}

void Calibration::second(std::int64_t index, bool value, std::span<const float> values) {
  Side& side = this->side(index, value);
  const std::size_t per_unit = values.size() / side.candidates.size();
  for (std::size_t unit = 0; unit < side.candidates.size(); ++unit) {
    const auto part = values.subspan(unit * per_unit, per_unit);
    for (ScaleCost& cost : side.candidates[unit]) add_cost(options_.type, part, cost);
  }
}

CalibratedSide Calibration::describe(const Side& side) const {
  CalibratedSide result;
  for (std::size_t i = 0; i < side.candidates.size(); ++i) {
    const MagnitudeHistogram unit = options_.per_head ? side.magnitudes.heads[i] : whole(side.magnitudes);
    result.units.push_back({options_.per_head ? static_cast<std::int64_t>(i) : -1, cheapest(side.candidates[i]),
                            side.candidates[i].back(), unit.largest(), unit.percentile(0.9999), unit.rms()});
  }
  result.worst = worst_channels(side.magnitudes, spec_.attention.head_dim);
  const MagnitudeHistogram all = whole(side.magnitudes);
  result.zeros = all.zeros();
  for (int octave = MagnitudeHistogram::kLowest; octave < MagnitudeHistogram::kLowest + MagnitudeHistogram::kOctaves;
       ++octave) {
    const std::int64_t count = all.octave(octave);
    if (count > 0 || !result.octaves.empty()) result.octaves.emplace_back(octave, count);
  }
  while (!result.octaves.empty() && result.octaves.back().second == 0) result.octaves.pop_back();
  return result;
}

std::vector<CalibratedLayer> Calibration::finish() {
  std::vector<CalibratedLayer> result;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const auto index = static_cast<std::int64_t>(i);
    result.push_back({layers_[i], describe(side(index, false)), describe(side(index, true))});
  }
  return result;
}

std::map<std::int64_t, formats::KvScalesFile::Layer> calibrated_scales(const std::vector<CalibratedLayer>& layers) {
  std::map<std::int64_t, formats::KvScalesFile::Layer> scales;
  for (const CalibratedLayer& layer : layers) {
    formats::KvScalesFile::Layer& target = scales[layer.layer];
    for (const CalibratedUnit& unit : layer.k.units) target.k.push_back(unit.chosen.scale);
    for (const CalibratedUnit& unit : layer.v.units) target.v.push_back(unit.chosen.scale);
  }
  return scales;
}

boost::json::array calibration_json(const std::vector<CalibratedLayer>& layers) {
  boost::json::array result;
  for (const CalibratedLayer& layer : layers) {
    result.push_back(boost::json::object{{"layer", layer.layer}, {"k", side_json(layer.k)}, {"v", side_json(layer.v)}});
  }
  return result;
}

std::string calibration_text(const std::vector<CalibratedLayer>& layers) {
  std::string text =
      fmt::format("{:>5} {:<2}{:>5} {:>11} {:>11} {:>12} {:>10} {:>9} {:>10} {:>9} {:>9}\n", "layer", "", "head",
                  "amax", "99.99 %", "scale", "rel. MSE", "clipped", "MSE at 1", "clipped", "to zero");
  for (const CalibratedLayer& layer : layers) {
    text += side_text(layer.layer, "K", layer.k);
    text += side_text(layer.layer, "V", layer.v);
  }
  text += "\nmagnitudes by octave, and the channels that reach furthest\n";
  for (const CalibratedLayer& layer : layers) {
    for (const bool value : {false, true}) {
      const CalibratedSide& side = value ? layer.v : layer.k;
      if (side.octaves.empty()) continue;
      text += fmt::format("{:>5} {}  2^{:<4}{}  2^{}", layer.layer, value ? "V" : "K", side.octaves.front().first,
                          sparkline(side), side.octaves.back().first + 1);
      for (const WorstChannel& channel : side.worst) {
        text += fmt::format("  head {} dim {}: {:.3g} ({:.1f} x the median channel)", channel.head, channel.dim,
                            channel.amax, channel.ratio);
      }
      text += "\n";
    }
  }
  return text;
}

}  // namespace sterling::lab
