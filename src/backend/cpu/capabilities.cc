// What this backend can do and with which kernels: for the resolver, the manifest and the proof.
#include <fmt/format.h>

#include "backend/cpu/cpu_backend_impl.h"

namespace sterling::backend {

plan::BackendCapabilities CpuBackend::capabilities() const {
  plan::BackendCapabilities result;
  result.name = fmt::format("cpu, {}", kernels_.name);
  result.computes = {"bf16", "fp32"};
  result.kv_types.assign(plan::kKvTypes.begin(), plan::kKvTypes.end());
  result.packed_formats = {"bf16", "fp8_e4m3_tensor", "fp8_e4m3_channel", "fp8_e4m3_block", "nvfp4", "mxfp4", "mxfp8"};
  return result;
}

std::vector<std::pair<std::string, std::string>> CpuBackend::kernels() const {
  const std::string tier = kernels_.name;
  // Encoding K and V is baseline code, the same in every tier.
  return {{"linear", tier}, {"moe", tier},  {"attention", tier},  {"gated_delta_net", tier}, {"convolution", tier},
          {"norm", tier},   {"rope", tier}, {"activation", tier}, {"kv_encode", "baseline"}};
}

}  // namespace sterling::backend
