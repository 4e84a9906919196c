#include "proof/state_check.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace sterling::proof {
namespace {

// FP32 arithmetic over a few dozen tokens stays below 2^-17 of the largest element; FP16 storage errs by up to 2^-12 of it, BF16 by 2^-9.
constexpr double kAllowed = 0x1p-14;

double silu(double x) {
  return x / (1.0 + std::exp(-x));
}

// x / sqrt(sum of squares + 1e-6), times `scale`.
void normalise(std::span<double> x, double scale) {
  double sum = 1e-6;
  for (const double value : x) sum += value * value;
  for (double& value : x) value *= scale / std::sqrt(sum);
}

}  // namespace

// S ← decay S;  d = beta (v − Sᵀ k);  S ← S + k dᵀ
void StateCheck::advance(std::span<const double> q_k_v, double decay, double beta) {
  const auto keys = static_cast<std::size_t>(spec_->key_dim);
  const auto values = static_cast<std::size_t>(spec_->value_dim);
  const auto k = q_k_v.subspan(keys, keys);
  const auto v = q_k_v.subspan(2 * keys);
  for (double& s : state_) s *= decay;
  for (std::size_t j = 0; j < values; ++j) {
    double read = 0.0;
    for (std::size_t i = 0; i < keys; ++i) read += k[i] * state_[i * values + j];
    const double delta = (v[j] - read) * beta;
    for (std::size_t i = 0; i < keys; ++i) state_[i * values + j] += k[i] * delta;
  }
}

std::string StateCheck::compare_window(const backend::Backend& backend, const backend::GdnArgs& args,
                                       std::int32_t slot) const {
  const auto window = backend.read_conv_window(args, slot);
  const auto channels = static_cast<std::size_t>(spec_->conv_channels());
  const auto kept = static_cast<std::size_t>(spec_->conv_kernel - 1);
  const std::size_t tokens = inputs_.size() / channels;
  for (std::size_t i = 0; i < kept; ++i) {
    for (std::size_t c = 0; c < channels; ++c) {
      const float expected = tokens + i >= kept ? inputs_[(tokens + i - kept) * channels + c] : 0.0F;
      if (window[i * channels + c] == expected) continue;
      return fmt::format("convolution window, input {} before the last, channel {}: expected {:.9g}, found {:.9g}",
                         kept - i, c, expected, window[i * channels + c]);
    }
  }
  return {};
}

std::string StateCheck::compare(const backend::Backend& backend, const backend::GdnArgs& args, std::int32_t slot,
                                std::span<const float> qkv, std::span<const float> a, std::span<const float> b) {
  const auto channels = static_cast<std::size_t>(spec_->conv_channels());
  const auto keys = static_cast<std::size_t>(spec_->key_dim);
  const auto values = static_cast<std::size_t>(spec_->value_dim);
  const auto heads = static_cast<std::size_t>(spec_->value_heads);
  const auto taps = static_cast<std::size_t>(spec_->conv_kernel);
  const auto head = static_cast<std::size_t>(head_);
  const std::size_t key_head = head / (heads / static_cast<std::size_t>(spec_->key_heads));
  const std::size_t key_width = keys * static_cast<std::size_t>(spec_->key_heads);
  const auto conv = backend.read_vector(args.conv);
  const auto exp_a = backend.read_vector(args.exp_a_log);
  const auto dt_bias = backend.read_vector(args.dt_bias);
  state_.resize(keys * values, 0.0);
  const std::size_t before = inputs_.size() / channels;
  inputs_.insert(inputs_.end(), qkv.begin(), qkv.end());
  const std::size_t after = inputs_.size() / channels;

  std::vector<double> mixed(2 * keys + values);
  for (std::size_t t = before; t < after; ++t) {
    for (std::size_t i = 0; i < mixed.size(); ++i) {
      const std::size_t channel = i < keys       ? key_head * keys + i
                                  : i < 2 * keys ? key_width + key_head * keys + (i - keys)
                                                 : 2 * key_width + head * values + (i - 2 * keys);
      double sum = 0.0;
      for (std::size_t j = 0; j < taps; ++j) {
        if (t + j + 1 < taps) continue;
        sum += static_cast<double>(conv[j * channels + channel]) *
               static_cast<double>(inputs_[(t + j + 1 - taps) * channels + channel]);
      }
      mixed[i] = silu(sum);
    }
    normalise(std::span(mixed).first(keys), 1.0 / std::sqrt(static_cast<double>(keys)));
    normalise(std::span(mixed).subspan(keys, keys), 1.0);
    const std::size_t row = (t - before) * heads + head;
    const double gate = static_cast<double>(a[row]) + static_cast<double>(dt_bias[head]);
    const double softplus = gate > 30.0 ? gate : std::log1p(std::exp(gate));
    advance(mixed, std::exp(-static_cast<double>(exp_a[head]) * softplus),
            1.0 / (1.0 + std::exp(-static_cast<double>(b[row]))));
  }

  const auto stored = backend.read_state(args, slot);
  double largest = 1e-30;
  for (const double s : state_) largest = std::max(largest, std::fabs(s));
  for (std::size_t i = 0; i < state_.size(); ++i) {
    const auto found = static_cast<double>(stored[head * state_.size() + i]);
    const double error = std::fabs(found - state_[i]) / largest;
    largest_error_ = std::max(largest_error_, error);
    if (error <= kAllowed) continue;
    return fmt::format(
        "state of head {}, key {}, value {}: {:.9g} in double, found {:.9g}; {:.1e} of the largest element, allowed "
        "{:.1e}",
        head, i / values, i % values, state_[i], found, error, kAllowed);
  }
  return compare_window(backend, args, slot);
}

}  // namespace sterling::proof
