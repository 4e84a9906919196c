// The CPU backend: weights packed into panels, a pool of threads, one tier of kernels, paged KV tiles.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "backend/backend.h"
#include "backend/weight_sizes.h"
#include "kernels/contract.h"
#include "platform/thread_pool.h"
#include "quant/round_activations.h"
#include "quant/stored_weight.h"

namespace sterling::backend {

// Rounds the inputs of chosen products as engines with quantised activations do (quant/round_activations.h). A measuring instrument of `sterling audit`,
// under Compute::kFp32 alone; logits() never rounds. Calibrated scales of the checkpoint are used where their format is the emulated one; products of one input
// share the largest of theirs, as engines fuse them.
struct ActivationEmulation {
  quant::ActivationFormat format = quant::ActivationFormat::kNvfp4;
  std::function<bool(const quant::StoredWeight& weight)> applies;  // to the inputs of this weight; asked while loading
};

struct CpuBackendOptions {
  Compute compute = Compute::kBf16;
  const kernels::KernelTable* kernels = nullptr;  // chosen by kernels/dispatch.h
  platform::ThreadPool* pool = nullptr;           // must outlive the backend
  std::optional<ActivationEmulation> activations = std::nullopt;
};

std::unique_ptr<Backend> make_cpu_backend(const CpuBackendOptions& options);

// The sizes of weights in such a backend. The same for every tier of kernels.
std::unique_ptr<WeightSizes> cpu_weight_sizes(Compute compute);

}  // namespace sterling::backend
