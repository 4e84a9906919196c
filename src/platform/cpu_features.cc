// Bit positions: Intel SDM volume 2A, CPUID; volume 1 §13.3 for XCR0. AMD uses the same leaves.
#include "platform/cpu_features.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <initializer_list>

namespace sterling::platform {
namespace {

constexpr bool bit(std::uint32_t word, unsigned position) {
  return ((word >> position) & 1u) != 0;
}

constexpr std::uint64_t kXcr0Ymm = 0x06;         // XMM and upper halves of YMM
constexpr std::uint64_t kXcr0Zmm = 0xe0 | 0x06;  // opmask, upper halves of ZMM0-15, ZMM16-31
constexpr std::uint64_t kXcr0Tile = 0x60000;     // tile configuration and data

// Four registers as the text they hold, byte by byte; stops at NUL.
std::string register_text(std::initializer_list<std::uint32_t> words) {
  std::string text;
  for (const std::uint32_t word : words) {
    for (unsigned shift = 0; shift < 32; shift += 8) {
      const char c = static_cast<char>((word >> shift) & 0xffu);
      if (c == '\0') return text;
      text.push_back(c);
    }
  }
  return text;
}

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(' ');
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

void decode_signature(std::uint32_t eax, CpuFeatures& features) {
  const std::uint32_t base_family = (eax >> 8) & 0xfu;
  features.stepping = eax & 0xfu;
  features.family = base_family == 0xfu ? base_family + ((eax >> 20) & 0xffu) : base_family;
  features.model = (eax >> 4) & 0xfu;
  // Intel uses the extended model for family 6 too.
  if (base_family == 0xfu || base_family == 0x6u) features.model |= ((eax >> 16) & 0xfu) << 4;
}

std::string decode_brand(const CpuidSource& source) {
  if (source.cpuid(0x80000000u, 0).eax < 0x80000004u) return {};
  std::string brand;
  for (std::uint32_t leaf = 0x80000002u; leaf <= 0x80000004u; ++leaf) {
    const CpuidRegisters r = source.cpuid(leaf, 0);
    const std::string part = register_text({r.eax, r.ebx, r.ecx, r.edx});
    brand += part;
    if (part.size() < 16) break;
  }
  return trimmed(brand);
}

}  // namespace

CpuFeatures decode_cpu_features(const CpuidSource& source) {
  CpuFeatures features;
  const CpuidRegisters basic = source.cpuid(0, 0);
  const std::uint32_t highest = basic.eax;
  features.vendor = register_text({basic.ebx, basic.edx, basic.ecx});
  if (highest < 1) return features;

  const CpuidRegisters one = source.cpuid(1, 0);
  decode_signature(one.eax, features);
  features.brand = decode_brand(source);

  const bool osxsave = bit(one.ecx, 27);  // the OS uses XSAVE, so XGETBV exists
  const std::uint64_t xcr0 = osxsave ? source.xcr0() : 0;
  const bool ymm_saved = (xcr0 & kXcr0Ymm) == kXcr0Ymm;
  const bool zmm_saved = (xcr0 & kXcr0Zmm) == kXcr0Zmm;
  const bool tile_saved = (xcr0 & kXcr0Tile) == kXcr0Tile;

  const CpuidRegisters seven = highest >= 7 ? source.cpuid(7, 0) : CpuidRegisters{};
  const CpuidRegisters seven_one = highest >= 7 && seven.eax >= 1 ? source.cpuid(7, 1) : CpuidRegisters{};

  const bool has_avx = bit(one.ecx, 28);
  const bool has_avx2 = has_avx && bit(seven.ebx, 5) && bit(one.ecx, 12);
  const bool has_avx512 =
      has_avx2 && bit(seven.ebx, 16) && bit(seven.ebx, 17) && bit(seven.ebx, 30) && bit(seven.ebx, 31);

  features.avx2 = has_avx2 && ymm_saved;
  features.f16c = has_avx && bit(one.ecx, 29) && ymm_saved;
  features.avx512 = has_avx512 && zmm_saved;
  features.avx512_bf16 = features.avx512 && bit(seven_one.eax, 5);
  const bool amx_tile = bit(seven.edx, 24) && tile_saved;
  features.amx_bf16 = amx_tile && bit(seven.edx, 22);
  features.amx_int8 = amx_tile && bit(seven.edx, 25);
  features.ymm_not_saved = has_avx2 && !ymm_saved;
  features.zmm_not_saved = has_avx512 && !zmm_saved;
  return features;
}

CpuFeatures detect_cpu_features() {
#if defined(__x86_64__)
  const CpuidSource source{[](std::uint32_t leaf, std::uint32_t subleaf) {
                             CpuidRegisters r;
                             __cpuid_count(leaf, subleaf, r.eax, r.ebx, r.ecx, r.edx);
                             return r;
                           },
                           []() -> std::uint64_t {
                             // The intrinsic needs -mxsave; this unit is compiled for the baseline.
                             std::uint32_t low = 0;
                             std::uint32_t high = 0;
                             asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
                             return (std::uint64_t{high} << 32) | low;
                           }};
  return decode_cpu_features(source);
#else
  return {};
#endif
}

std::string_view best_isa(const CpuFeatures& features) {
  if (features.avx512_bf16) return "avx512bf16";
  if (features.avx512) return "avx512";
  if (features.avx2) return "avx2";
  return "scalar";
}

bool isa_usable(const CpuFeatures& features, std::string_view isa) {
  if (isa == "scalar") return true;
  if (isa == "avx2") return features.avx2;
  if (isa == "avx512") return features.avx512;
  if (isa == "avx512bf16") return features.avx512_bf16;
  return false;
}

std::string machine_class(const CpuFeatures& features) {
  const std::string vendor = features.vendor.empty() ? "unknown" : features.vendor;
  return vendor + "-" + std::to_string(features.family) + "-" + std::to_string(features.model) + " " +
         std::string(best_isa(features));
}

}  // namespace sterling::platform
