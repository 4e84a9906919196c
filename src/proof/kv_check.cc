#include "proof/kv_check.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "proof/kv_codec.h"

namespace sterling::proof {
namespace {

using plan::KvType;

// The type that a pool of the same use could have been narrowed to without anyone noticing by its size.
bool lies_on_narrower_grid(KvType type, double code_value) {
  if (code_value == 0.0 || !std::isfinite(code_value)) return true;
  int exponent = 0;
  const double mantissa = std::frexp(std::fabs(code_value), &exponent);
  const int digits = type == KvType::kFp32 ? 8 : type == KvType::kBf16 ? 4 : type == KvType::kFp8E5m2 ? 2 : 3;
  const double scaled = std::ldexp(mantissa, digits);
  return scaled == std::floor(scaled);
}

double bf16(double x) {
  return decode_bits(KvType::kBf16, expected_bits(KvType::kBf16, static_cast<float>(x), 1.0F));
}

}  // namespace

double KvSide::scale_of(std::int64_t head, std::int64_t token) const {
  if (type_ == KvType::kFp8E4m3Token)
    return static_cast<double>(token_scales_[static_cast<std::size_t>(head * tokens_ + token)]);
  if (scales_.empty()) return 1.0;
  return static_cast<double>(scales_[scales_.size() == 1 ? 0 : static_cast<std::size_t>(head)]);
}

std::string KvSide::compare_element(float x, std::uint32_t bits, float scale, std::size_t at) {
  const std::uint32_t expected = expected_bits(type_, x, scale);
  const double code = decode_bits(type_, bits);
  decoded_[at] = code * static_cast<double>(scale);
  ++compared_;
  needs_width_ = needs_width_ || !lies_on_narrower_grid(type_, code);
  if (bits != expected) {
    return fmt::format("produced {:.9g} (scale {:.9g}), expected code {:#x} ({:.9g}), found {:#x} ({:.9g})", x, scale,
                       expected, decode_bits(type_, expected), bits, code);
  }
  const double quotient = static_cast<double>(x) / static_cast<double>(scale);
  const double normal = type_ == KvType::kFp8E5m2                          ? 0x1p-14
                        : type_ == KvType::kBf16 || type_ == KvType::kFp32 ? 0x1p-126
                                                                           : 0x1p-6;
  const double most = type_ == KvType::kFp8E5m2                          ? 57344.0
                      : type_ == KvType::kBf16 || type_ == KvType::kFp32 ? 3e38
                                                                         : 448.0;
  if (std::fabs(quotient) >= normal && std::fabs(quotient) <= most) {
    largest_error_ = std::max(largest_error_, std::fabs(code - quotient) / std::fabs(quotient));
  }
  return {};
}

std::string KvSide::compare(const backend::Backend& backend, const backend::AttentionArgs& args,
                            std::span<const std::int32_t> blocks, std::span<const float> produced, bool value) {
  const std::int64_t heads = spec_->kv_heads;
  const std::int64_t dim = spec_->head_dim;
  produced_.insert(produced_.end(), produced.begin(), produced.end());
  tokens_ = static_cast<std::int64_t>(produced_.size()) / (heads * dim);
  const auto raw = backend.read_kv_raw(args, blocks, tokens_, value);
  const auto elements = static_cast<std::size_t>(heads * tokens_ * dim);
  if (raw.size() != elements * element_bytes(type_)) {
    return fmt::format("the pool holds {} bytes for {} elements; {} takes {}", raw.size(), elements,
                       plan::kv_type_name(type_), elements * element_bytes(type_));
  }
  token_scales_.clear();
  if (type_ == KvType::kFp8E4m3Token) token_scales_ = backend.read_kv_scales(args, blocks, tokens_, value);
  decoded_.assign(elements, 0.0);
  for (std::int64_t head = 0; head < heads; ++head) {
    for (std::int64_t token = 0; token < tokens_; ++token) {
      const float* row = produced_.data() + (token * heads + head) * dim;
      const auto scale = static_cast<float>(scale_of(head, token));
      if (type_ == KvType::kFp8E4m3Token) {
        const float expected = expected_token_scale({row, static_cast<std::size_t>(dim)});
        if (scale != expected)
          return fmt::format("head {}, token {}: scale {:.9g}, expected {:.9g}", head, token, scale, expected);
      }
      for (std::int64_t d = 0; d < dim; ++d) {
        const auto at = static_cast<std::size_t>((head * tokens_ + token) * dim + d);
        if (!std::isfinite(row[d]))
          return fmt::format("head {}, token {}, dim {}: the layer produced {}", head, token, d, row[d]);
        const std::string fault = compare_element(row[d], element_bits(type_, raw, at), scale, at);
        if (!fault.empty()) return fmt::format("head {}, token {}, dim {}: {}", head, token, d, fault);
      }
    }
  }
  return {};
}

// The kernel's error against this row, term by term (u = 2^-24):
//   scores   a sum of head_dim products in any order: head_dim u Σ|q k| scale, and as much for the maximum
//   exp      2^-20 with what it does to its argument
//   rounding of a numerator: emulated, but where the numerator lies so near to a tie that the above decides, it may go either way: 2^-8
//   P·V      tokens u Σ p|v|, and the division
ExactRow exact_row(const AttentionSpec& spec, std::span<const float> q, bool round, const std::vector<double>& k,
                   const std::vector<double>& v, std::int64_t head, std::int64_t stride, std::int64_t tokens) {
  constexpr double kUnit = 0x1p-24;
  const std::int64_t dim = spec.head_dim;
  const auto row = [&](const std::vector<double>& values, std::int64_t token) {
    return values.data() + (head * stride + token) * dim;
  };
  std::vector<double> query(static_cast<std::size_t>(dim));
  for (std::int64_t d = 0; d < dim; ++d) {
    const auto i = static_cast<std::size_t>(d);
    query[i] = round ? bf16(static_cast<double>(q[i])) : static_cast<double>(q[i]);
  }
  std::vector<double> score(static_cast<std::size_t>(tokens));
  std::vector<double> doubt(static_cast<std::size_t>(tokens));
  double top = -INFINITY;
  double top_doubt = 0.0;
  for (std::int64_t t = 0; t < tokens; ++t) {
    double sum = 0.0;
    double size = 0.0;
    for (std::int64_t d = 0; d < dim; ++d) {
      const double product = query[static_cast<std::size_t>(d)] * row(k, t)[d];
      sum += product;
      size += std::fabs(product);
    }
    score[static_cast<std::size_t>(t)] = sum * static_cast<double>(spec.scale);
    doubt[static_cast<std::size_t>(t)] = static_cast<double>(dim + 4) * kUnit * size * static_cast<double>(spec.scale);
    if (score[static_cast<std::size_t>(t)] > top) {
      top = score[static_cast<std::size_t>(t)];
      top_doubt = doubt[static_cast<std::size_t>(t)];
    }
  }
  ExactRow result;
  result.out.assign(static_cast<std::size_t>(dim), 0.0);
  result.bound.assign(static_cast<std::size_t>(dim), 0.0);
  result.weight.resize(static_cast<std::size_t>(tokens));
  std::vector<double> slack(static_cast<std::size_t>(tokens));
  double total = 0.0;
  for (std::size_t t = 0; t < score.size(); ++t) {
    const double p = std::exp(score[t] - top);
    const double relative = doubt[t] + top_doubt + 0x1p-20;
    double rounded = p;
    slack[t] = relative * p;
    if (round) {
      rounded = bf16(p);
      if (bf16(p * (1.0 - relative)) != bf16(p * (1.0 + relative))) slack[t] += 0x1p-7 * p;
    }
    result.weight[t] = rounded;
    total += rounded;
  }
  for (std::size_t t = 0; t < score.size(); ++t) {
    result.weight[t] /= total;
    for (std::int64_t d = 0; d < dim; ++d)
      result.out[static_cast<std::size_t>(d)] += result.weight[t] * row(v, static_cast<std::int64_t>(t))[d];
  }
  for (std::int64_t d = 0; d < dim; ++d) {
    const auto i = static_cast<std::size_t>(d);
    double size = 0.0;
    for (std::size_t t = 0; t < score.size(); ++t) {
      const double value = std::fabs(row(v, static_cast<std::int64_t>(t))[d]);
      size += result.weight[t] * value;
      result.bound[i] += slack[t] / total * (value + std::fabs(result.out[i]));
    }
    result.bound[i] += static_cast<double>(tokens + 8) * kUnit * 2.0 * size + 1e-37;
  }
  return result;
}

}  // namespace sterling::proof
