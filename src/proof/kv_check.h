// Write, read and flip: what attention layers store and read back.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "plan/precision.h"

namespace sterling::proof {

// What a layer's K or V must look like in memory, grown step by step.
class KvSide {
 public:
  // `scales`: of this layer, one or one per KV head; empty where the type has none.
  KvSide(plan::KvType type, const AttentionSpec& spec, std::vector<float> scales)
      : type_(type), spec_(&spec), scales_(std::move(scales)) {}

  // `produced`: [tokens of the step][kv_heads * head_dim] as the layer gave them. Compares the pool's bytes of all tokens so far with the
  // codes of what was produced. Empty: they match; else where they don't.
  std::string compare(const backend::Backend& backend, const backend::AttentionArgs& args,
                      std::span<const std::int32_t> blocks, std::span<const float> produced, bool value);
  // As decoded by the last compare(): [kv_heads][tokens][head_dim], code times scale.
  const std::vector<double>& decoded() const { return decoded_; }
  std::int64_t tokens() const { return tokens_; }
  double scale_of(std::int64_t head, std::int64_t token) const;

  // Over everything compared: the largest |stored - produced| / 2^exponent(produced) of values in the type's normal range, in units of the last place's
  // half; and whether some element needed the type's full width.
  double largest_error() const { return largest_error_; }
  bool needs_width() const { return needs_width_; }
  std::int64_t compared() const { return compared_; }

 private:
  std::string compare_element(float x, std::uint32_t bits, float scale, std::size_t at);

  plan::KvType type_;
  const AttentionSpec* spec_;
  std::vector<float> scales_;
  std::int64_t tokens_ = 0;
  std::vector<float> produced_;      // [tokens][kv_heads * head_dim]
  std::vector<float> token_scales_;  // [kv_heads][tokens]
  std::vector<double> decoded_;
  double largest_error_ = 0.0;
  bool needs_width_ = false;
  std::int64_t compared_ = 0;
};

// One attention row in double.
struct ExactRow {
  std::vector<double> out;     // [head_dim]
  std::vector<double> bound;   // how far an FP32 kernel may be from it
  std::vector<double> weight;  // [tokens] the softmax
};
// `q`: [head_dim] as it entered attention. `round`: q and the softmax's numerators are rounded to BF16 (compute bf16). Keys [0, tokens) of `head`.
ExactRow exact_row(const AttentionSpec& spec, std::span<const float> q, bool round, const std::vector<double>& k,
                   const std::vector<double>& v, std::int64_t head, std::int64_t stride, std::int64_t tokens);

}  // namespace sterling::proof
