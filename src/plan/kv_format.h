// How K and V are stored in the cache. The names are the product's: flags, manifest, logs and JSON all print them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sterling::plan {

enum class KvType {
  kBf16,
  kFp32,
  kFp8E4m3,       // code = e4m3(x / scale), scale per tensor or per head, fixed for the life of the server
  kFp8E5m2,       // likewise in E5M2
  kFp8E4m3Token,  // E4M3 with an FP32 scale per token and head stored beside the codes: a power of two, so that decoded values are BF16 values
};
inline constexpr std::array kKvTypes = {KvType::kBf16, KvType::kFp32, KvType::kFp8E4m3, KvType::kFp8E5m2,
                                        KvType::kFp8E4m3Token};

// "bf16", "fp32", "fp8_e4m3", "fp8_e5m2", "fp8_e4m3_token"
std::string_view kv_type_name(KvType type);
// With the layout of the bits (sign-exponent-mantissa): "fp8_e4m3 (1-4-3)"
std::string_view kv_type_name_with_bits(KvType type);
// Only the product's own names; other engines' spellings are config/'s matter.
std::optional<KvType> kv_type_from_name(std::string_view name);
// True for the types whose codes are divided by a scale that must come from somewhere.
bool needs_scales(KvType type);

// K and V may differ.
struct KvFormat {
  KvType k = KvType::kBf16;
  KvType v = KvType::kBf16;

  bool operator==(const KvFormat&) const = default;
};

// "bf16", or "k=bf16,v=fp8_e4m3" where they differ.
std::string kv_format_name(const KvFormat& format);

// What K and V are divided by before they are encoded and multiplied by when read: for each full-attention layer in order one value (the
// whole tensor) or kv_heads values. Finite and positive. An empty list means 1 for every layer.
struct KvScales {
  std::vector<std::vector<float>> k;
  std::vector<std::vector<float>> v;
};

}  // namespace sterling::plan
