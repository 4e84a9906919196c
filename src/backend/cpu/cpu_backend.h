// The CPU backend: weights packed into panels, a pool of threads, one tier of kernels, paged KV tiles.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "backend/weight_sizes.h"
#include "kernels/contract.h"
#include "platform/thread_pool.h"

namespace sterling::backend {

struct CpuBackendOptions {
  Compute compute = Compute::kBf16;
  const kernels::KernelTable* kernels = nullptr;  // chosen by kernels/dispatch.h
  platform::ThreadPool* pool = nullptr;           // must outlive the backend
};

std::unique_ptr<Backend> make_cpu_backend(const CpuBackendOptions& options);

// The sizes of weights in such a backend. The same for every tier of kernels.
std::unique_ptr<WeightSizes> cpu_weight_sizes(Compute compute);

}  // namespace sterling::backend
