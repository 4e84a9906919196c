#include "plan/kv_format.h"

#include "base/check.h"

namespace sterling::plan {
namespace {

struct Row {
  KvType type;
  std::string_view name;
  std::string_view name_with_bits;
  bool needs_scales;
};

constexpr std::array kRows = {
    Row{KvType::kBf16, "bf16", "bf16 (1-8-7)", false},
    Row{KvType::kFp32, "fp32", "fp32 (1-8-23)", false},
    Row{KvType::kFp8E4m3, "fp8_e4m3", "fp8_e4m3 (1-4-3)", true},
    Row{KvType::kFp8E5m2, "fp8_e5m2", "fp8_e5m2 (1-5-2)", true},
    Row{KvType::kFp8E4m3Token, "fp8_e4m3_token", "fp8_e4m3_token (1-4-3)", false},
};
static_assert(kRows.size() == kKvTypes.size());

const Row& row(KvType type) {
  for (const Row& candidate : kRows) {
    if (candidate.type == type) return candidate;
  }
  STERLING_CHECK(false);
  return kRows.front();
}

}  // namespace

std::string_view kv_type_name(KvType type) {
  return row(type).name;
}

std::string_view kv_type_name_with_bits(KvType type) {
  return row(type).name_with_bits;
}

std::optional<KvType> kv_type_from_name(std::string_view name) {
  for (const Row& candidate : kRows) {
    if (candidate.name == name) return candidate.type;
  }
  return std::nullopt;
}

bool needs_scales(KvType type) {
  return row(type).needs_scales;
}

std::string kv_format_name(const KvFormat& format) {
  if (format.k == format.v) return std::string(kv_type_name(format.k));
  std::string name("k=");
  name += kv_type_name(format.k);
  name += ",v=";
  name += kv_type_name(format.v);
  return name;
}

}  // namespace sterling::plan
