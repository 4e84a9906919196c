// Register values are built from the bit numbers of the Intel SDM; the running machine is compared with the kernel's own
// decoding in /proc/cpuinfo.
#include "platform/cpu_features.h"

#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include <gtest/gtest.h>

namespace sterling::platform {
namespace {

class FakeCpu {
 public:
  FakeCpu() {
    leaf(0).eax = 7;
    const char* vendor = "GenuineIntel";  // in EBX, EDX, ECX
    std::memcpy(&leaf(0).ebx, vendor, 4);
    std::memcpy(&leaf(0).edx, vendor + 4, 4);
    std::memcpy(&leaf(0).ecx, vendor + 8, 4);
    leaf(1).eax = 0x000806f8;                                 // Sapphire Rapids: family 6, model 0x8f, stepping 8
    leaf(1).ecx = 1u << 12 | 1u << 27 | 1u << 28 | 1u << 29;  // FMA, OSXSAVE, AVX, F16C
    leaf(7).eax = 1;                                          // one more subleaf
    leaf(7).ebx = 1u << 5 | 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;  // AVX2, AVX512 F, DQ, BW, VL
    leaf(7).edx = 1u << 22 | 1u << 24 | 1u << 25;                       // AMX BF16, TILE, INT8
    leaf(7, 1).eax = 1u << 5;                                           // AVX512_BF16
    leaf(0x80000000u).eax = 0x80000008u;
    const char brand[49] = "  Example(R) CPU @ 2.00GHz";
    for (unsigned i = 0; i < 3; ++i) std::memcpy(&leaf(0x80000002u + i), brand + 16 * i, 16);
  }

  CpuidRegisters& leaf(std::uint32_t number, std::uint32_t subleaf = 0) { return leaves_[{number, subleaf}]; }
  std::uint64_t xcr0 = 0x602e7;

  CpuFeatures decode() {
    return decode_cpu_features({[this](std::uint32_t number, std::uint32_t subleaf) {
                                  const auto found = leaves_.find({number, subleaf});
                                  return found == leaves_.end() ? CpuidRegisters{} : found->second;
                                },
                                [this] { return xcr0; }});
  }

 private:
  std::map<std::pair<std::uint32_t, std::uint32_t>, CpuidRegisters> leaves_;
};

TEST(CpuFeatures, EverythingThereAndSaved) {
  const CpuFeatures f = FakeCpu().decode();
  EXPECT_TRUE(f.avx2 && f.f16c && f.avx512 && f.avx512_bf16 && f.amx_bf16 && f.amx_int8);
  EXPECT_FALSE(f.ymm_not_saved || f.zmm_not_saved);
  EXPECT_EQ(f.vendor, "GenuineIntel");
  EXPECT_EQ(f.brand, "Example(R) CPU @ 2.00GHz");
  EXPECT_EQ(f.family, 6u);
  EXPECT_EQ(f.model, 0x8fu);
  EXPECT_EQ(f.stepping, 8u);
  EXPECT_EQ(best_isa(f), "avx512bf16");
  EXPECT_EQ(machine_class(f), "GenuineIntel-6-143 avx512bf16");
}

TEST(CpuFeatures, ExtendedFamilyIsAdded) {
  FakeCpu cpu;
  cpu.leaf(1).eax = 0x00a10f11;  // Zen 4 server: family 0xf + 0xa = 25, model 0x11
  const CpuFeatures f = cpu.decode();
  EXPECT_EQ(f.family, 25u);
  EXPECT_EQ(f.model, 0x11u);
  EXPECT_EQ(f.stepping, 1u);
}

TEST(CpuFeatures, AnOperatingSystemThatDoesNotSaveRegistersTakesThemAway) {
  FakeCpu cpu;
  cpu.xcr0 = 0x7;  // x87, SSE, AVX
  CpuFeatures f = cpu.decode();
  EXPECT_TRUE(f.avx2);
  EXPECT_FALSE(f.avx512 || f.avx512_bf16 || f.amx_bf16);
  EXPECT_TRUE(f.zmm_not_saved);
  EXPECT_EQ(best_isa(f), "avx2");

  cpu.xcr0 = 0x3;
  f = cpu.decode();
  EXPECT_FALSE(f.avx2 || f.avx512);
  EXPECT_TRUE(f.ymm_not_saved);
  EXPECT_EQ(best_isa(f), "scalar");

  cpu.xcr0 = 0xe7 & ~0x20u;  // without the opmask registers
  EXPECT_FALSE(cpu.decode().avx512);

  cpu.xcr0 = 0x602e7;
  cpu.leaf(1).ecx &= ~(1u << 27);  // no OSXSAVE: XCR0 must not even be asked
  EXPECT_EQ(best_isa(cpu.decode()), "scalar");
}

TEST(CpuFeatures, EveryPartOfATierIsNeeded) {
  for (const unsigned missing : {16u, 17u, 30u, 31u}) {
    FakeCpu cpu;
    cpu.leaf(7).ebx &= ~(1u << missing);
    EXPECT_EQ(best_isa(cpu.decode()), "avx2") << missing;
  }
  FakeCpu no_fma;
  no_fma.leaf(1).ecx &= ~(1u << 12);
  EXPECT_EQ(best_isa(no_fma.decode()), "scalar");
  FakeCpu no_bf16;
  no_bf16.leaf(7, 1).eax = 0;
  EXPECT_EQ(best_isa(no_bf16.decode()), "avx512");
  FakeCpu no_subleaf;
  no_subleaf.leaf(7).eax = 0;  // subleaf 1 doesn't exist, whatever it answers
  EXPECT_EQ(best_isa(no_subleaf.decode()), "avx512");
}

TEST(CpuFeatures, OldProcessorWithoutLeafSeven) {
  FakeCpu cpu;
  cpu.leaf(0).eax = 5;
  cpu.leaf(0x80000000u).eax = 0x80000001u;
  const CpuFeatures f = cpu.decode();
  EXPECT_EQ(best_isa(f), "scalar");
  EXPECT_EQ(f.brand, "");
  EXPECT_EQ(f.vendor, "GenuineIntel");
}

TEST(CpuFeatures, IsaNames) {
  const CpuFeatures all = FakeCpu().decode();
  for (const char* isa : {"scalar", "avx2", "avx512", "avx512bf16"}) EXPECT_TRUE(isa_usable(all, isa)) << isa;
  EXPECT_FALSE(isa_usable(all, "sse9"));
  EXPECT_TRUE(isa_usable(CpuFeatures{}, "scalar"));
  EXPECT_FALSE(isa_usable(CpuFeatures{}, "avx2"));
}

TEST(CpuFeatures, ThisMachineAgreesWithTheKernel) {
  std::ifstream cpuinfo("/proc/cpuinfo");
  std::string line;
  std::set<std::string> flags;
  std::string vendor;
  while (std::getline(cpuinfo, line) && !line.empty()) {
    const std::string value = line.substr(std::min(line.size(), line.find(':') + 1));
    std::istringstream words(value);
    if (line.starts_with("flags")) {
      for (std::string flag; words >> flag;) flags.insert(flag);
    }
    if (line.starts_with("vendor_id")) words >> vendor;
  }
  if (flags.empty()) GTEST_SKIP() << "/proc/cpuinfo has no flags line here";
  const auto has = [&](const char* flag) { return flags.contains(flag); };
  const CpuFeatures f = detect_cpu_features();
  EXPECT_EQ(f.vendor, vendor);
  EXPECT_EQ(f.avx2, has("avx2") && has("fma"));
  EXPECT_EQ(f.f16c, has("f16c"));
  EXPECT_EQ(f.avx512, has("avx512f") && has("avx512bw") && has("avx512dq") && has("avx512vl") && f.avx2);
  EXPECT_EQ(f.avx512_bf16, has("avx512_bf16") && f.avx512);
  EXPECT_EQ(f.amx_bf16, has("amx_bf16"));
}

}  // namespace
}  // namespace sterling::platform
