// What this processor *and this operating system* let a program use. CPUID tells what the silicon has; XCR0 tells which
// register files the kernel saves on a context switch. An instruction set counts as usable only with both.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace sterling::platform {

struct CpuFeatures {
  // Usable instruction sets, one flag per tier of kernels/.
  bool avx2 = false;         // AVX2 and FMA
  bool f16c = false;         // FP16 <-> FP32 conversions
  bool avx512 = false;       // AVX-512 F, BW, DQ and VL, with avx2
  bool avx512_bf16 = false;  // the BF16 dot product, with avx512
  // Reported only: no tier uses them yet. AMX also needs a permission call per process, which nobody has made here.
  bool amx_bf16 = false;
  bool amx_int8 = false;

  // Has it, but the operating system does not save the registers: the reason a tier is missing on a capable CPU.
  bool ymm_not_saved = false;
  bool zmm_not_saved = false;

  std::string vendor;  // "GenuineIntel", "AuthenticAMD"; empty when unknown
  std::string brand;   // the marketing name, trimmed; may be empty under a hypervisor
  std::uint32_t family = 0;
  std::uint32_t model = 0;
  std::uint32_t stepping = 0;
};

// The best kernel tier that can run here: "scalar", "avx2", "avx512" or "avx512bf16", as --isa spells them.
std::string_view best_isa(const CpuFeatures& features);
// Can tier `isa` run here? False for an unknown name too.
bool isa_usable(const CpuFeatures& features, std::string_view isa);

// Names a class of machines whose speed is comparable, for benchmark records: "AuthenticAMD-25-17 avx512bf16".
std::string machine_class(const CpuFeatures& features);

struct CpuidRegisters {
  std::uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

// Where the answers come from; tests bring their own.
struct CpuidSource {
  std::function<CpuidRegisters(std::uint32_t leaf, std::uint32_t subleaf)> cpuid;
  std::function<std::uint64_t()> xcr0;  // asked only when CPUID says that it may be
};

CpuFeatures decode_cpu_features(const CpuidSource& source);

// The running machine. On an architecture other than x86-64 all flags are false.
CpuFeatures detect_cpu_features();

}  // namespace sterling::platform
