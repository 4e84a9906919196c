#include "lab/inspect_scales.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string_view>

#include <fmt/format.h>

#include "base/float_types.h"
#include "lab/inspect_findings.h"
#include "quant/stored_weight.h"

namespace sterling::lab {
namespace {

struct Tally {
  std::int64_t read = 0;
  std::int64_t nan = 0;  // or infinite
  std::int64_t negative = 0;
  std::int64_t zero = 0;
  std::int64_t one = 0;
};

bool is_e8m0(DType dtype) {
  return dtype == DType::kU8 || dtype == DType::kF8E8M0;
}

// Of a scale stored in one byte.
Tally tally_codes(std::span<const std::byte> data, bool e8m0) {
  std::array<std::int64_t, 256> counts{};
  for (const std::byte byte : data) ++counts[std::to_integer<std::size_t>(byte)];
  Tally tally;
  tally.read = static_cast<std::int64_t>(data.size());
  if (e8m0) {  // powers of two
    tally.nan = counts[0xff];
    tally.one = counts[127];
    return tally;
  }
  tally.nan = counts[0x7f] + counts[0xff];
  for (std::size_t code = 0x81; code < 0xff; ++code) tally.negative += counts[code];
  tally.zero = counts[0x00] + counts[0x80];
  tally.one = counts[0x38];
  return tally;
}

template <typename Stored>
Tally tally_floats(std::span<const std::byte> data) {
  Tally tally;
  for (std::size_t at = 0; at + sizeof(Stored) <= data.size(); at += sizeof(Stored)) {
    Stored stored;
    std::memcpy(&stored, data.data() + at, sizeof stored);
    float value = 0;
    if constexpr (std::is_same_v<Stored, float>) {
      value = stored;
    } else {
      value = to_float(stored);
    }
    ++tally.read;
    if (!std::isfinite(value)) {
      ++tally.nan;
    } else if (value < 0.0F) {
      ++tally.negative;
    } else if (value == 0.0F) {
      ++tally.zero;
    } else if (value == 1.0F) {
      ++tally.one;
    }
  }
  return tally;
}

Tally tally_of(const TensorView& tensor, std::span<const std::byte> data) {
  switch (tensor.dtype) {
    case DType::kF32: return tally_floats<float>(data);
    case DType::kBF16: return tally_floats<bf16>(data);
    case DType::kF16: return tally_floats<fp16>(data);
    default: return tally_codes(data, is_e8m0(tensor.dtype));
  }
}

bool is_block_scale(const TensorView& tensor) {
  const std::string_view name = tensor.name;
  if (!name.ends_with(".weight_scale") && !name.ends_with(".weight_scale_inv")) return false;
  switch (tensor.dtype) {
    case DType::kF8E4M3:
    case DType::kU8:
    case DType::kF8E8M0: return true;
    case DType::kF32:
    case DType::kBF16:
    case DType::kF16: return tensor.elements() > 1;
    default: return false;
  }
}

// The part of a tensor that is looked at: all of it, or a piece somewhere in it, of whole elements, that differs from tensor to tensor.
std::span<const std::byte> piece_of(const TensorView& tensor, std::size_t place, bool sampled) {
  constexpr auto kPiece = static_cast<std::size_t>(kScaleSample);
  if (!sampled || tensor.data.size() <= kPiece) return tensor.data;
  const std::size_t pieces = tensor.data.size() / kPiece;
  return tensor.data.subspan(place % pieces * kPiece, kPiece);
}

bool is_packed(const model::Examination& examination, std::string_view scale_name) {
  const std::string_view module = scale_name.substr(0, scale_name.rfind('.'));
  return std::any_of(examination.bound.begin(), examination.bound.end(), [&](const auto& weight) {
    return weight.module == module && weight.format != quant::WeightFormat::kPlain;
  });
}

}  // namespace

std::optional<std::string> lint_block_scales(const formats::Checkpoint& checkpoint,
                                             const model::Examination& examination, std::vector<LintFinding>& lint,
                                             std::int64_t budget) {
  std::vector<const TensorView*> scales;
  std::int64_t total = 0;
  for (const TensorView& tensor : checkpoint.tensors()) {
    if (!is_block_scale(tensor)) continue;
    scales.push_back(&tensor);
    total += static_cast<std::int64_t>(tensor.data.size());
  }
  if (scales.empty()) return std::nullopt;
  const bool sampled = total > budget;
  const auto most = static_cast<std::size_t>(std::max<std::int64_t>(1, budget / kScaleSample));
  const std::size_t step = sampled ? (scales.size() + most - 1) / most : 1;

  Findings findings(lint);
  std::optional<std::string> first_fault;
  std::int64_t bytes = 0;
  Tally all;
  for (std::size_t i = 0; i < scales.size(); i += step) {
    const TensorView& tensor = *scales[i];
    const std::span<const std::byte> piece = piece_of(tensor, i, sampled);
    const Tally tally = tally_of(tensor, piece);
    bytes += static_cast<std::int64_t>(piece.size());
    all.read += tally.read;
    all.one += tally.one;
    if (tally.nan + tally.negative > 0) {
      std::string message = fmt::format(
          "{}: tensor {} holds {} scales that are NaN or infinite and {} that are negative, of {} read; scales are "
          "finite and "
          "not negative",
          tensor.file, tensor.name, tally.nan, tally.negative, tally.read);
      // A weight that nothing packs (an MTP head) does not keep a model from loading.
      const bool packed = is_packed(examination, tensor.name);
      if (packed && !first_fault) first_fault = message;
      findings.add(packed ? LintSeverity::kError : LintSeverity::kWarning, "bad_scale", tensor.name,
                   std::move(message));
    }
    if (tally.zero > 0) {
      findings.add(LintSeverity::kWarning, "block_scale_zero", tensor.name,
                   fmt::format("{} of {} scales read are 0: the weights under them are 0 whatever their codes say",
                               tally.zero, tally.read));
    }
  }
  if (all.one == all.read) {
    findings.add(
        LintSeverity::kWarning, "weight_scales_all_one", "",
        fmt::format("all {} scales of rows or blocks that were read are 1.0: nobody measured the weights", all.read));
  }
  if (sampled) {
    findings.add(
        LintSeverity::kNote, "scales_sampled", "",
        fmt::format("{} of {} bytes of row and block scales were read: a fault in the others is found at loading",
                    bytes, total));
  }
  findings.close();
  return first_fault;
}

}  // namespace sterling::lab
