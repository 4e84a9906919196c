// Recurrent state: one value head of a Gated DeltaNet layer, in double from the layer's inputs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace sterling::proof {

class StateCheck {
 public:
  StateCheck(const GdnSpec& spec, std::int32_t head) : spec_(&spec), head_(head) {}

  // `qkv` [tokens][conv_channels], `a` and `b` [tokens][value_heads]: a step's inputs as the layer had them. Moves the own state on and compares
  // it with the slot's. Empty: they match; else what doesn't.
  std::string compare(const backend::Backend& backend, const backend::GdnArgs& args, std::int32_t slot,
                      std::span<const float> qkv, std::span<const float> a, std::span<const float> b);
  // Largest |stored - exact| over the largest |exact|, so far.
  double largest_error() const { return largest_error_; }

 private:
  void advance(std::span<const double> q_k_v, double decay, double beta);
  std::string compare_window(const backend::Backend& backend, const backend::GdnArgs& args, std::int32_t slot) const;

  const GdnSpec* spec_;
  std::int32_t head_;
  std::vector<float> inputs_;  // [tokens so far][conv_channels]
  std::vector<double> state_;  // [key_dim][value_dim]
  double largest_error_ = 0.0;
};

}  // namespace sterling::proof
