// Sizes of everything that the CPU backend allocates beside weights and the pools of sequences. configure() allocates by these numbers, `sterling plan` and
// the ledger of a start print them: one formula for all.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "backend/backend.h"
#include "backend/weight_sizes.h"
#include "kernels/contract.h"
#include "spec/model_spec.h"

namespace sterling::backend {

// How a product wants its input packed.
enum class InputForm { kBf16, kFp32RoundedToBf16, kFp32 };
constexpr std::size_t kInputForms = 3;

// The longest row that any weight multiplies, by the form in which it is packed; 0: no weight takes that form.
struct InputWidths {
  std::array<std::int64_t, kInputForms> widest = {};
  void add(InputForm form, std::int64_t k);
};
// Weights by their sizes, noting the widths that go with them: for a plan of a checkpoint (model/weight_plan.h). `widths` must outlive it.
std::unique_ptr<WeightSizes> cpu_weight_sizes(Compute compute, InputWidths* widths);
// Of a configuration alone, all weights BF16 or coded.
InputWidths input_widths(const ModelSpec& spec, Compute compute);

std::size_t packed_input_bytes(const kernels::KernelTable& kernels, InputForm form, std::int64_t rows, std::int64_t k);

// Per-thread memory of attention, and what all units share in split mode.
struct AttentionWorkspace {
  std::int64_t rows = 0;    // query rows of a unit
  std::size_t head = 0;     // [rows][head_dim], twice
  std::size_t packed = 0;   // the same, packed
  std::size_t kernel = 0;   // the kernel's own
  std::size_t stat = 0;     // [spans][rows], twice
  std::size_t partial = 0;  // [spans][rows][head_dim]
  std::int64_t split_rows = 0;
  std::size_t split = 0;

  std::size_t per_thread() const { return 2 * head + packed + kernel + 2 * stat + partial; }
};

constexpr std::int32_t kExpertRows = 64;  // rows of a chunk of one expert

struct ExpertWorkspace {
  std::size_t hidden = 0;                            // [pairs][intermediate], shared
  std::size_t rows = 0;                              // [kExpertRows][widest], twice, per thread
  std::array<std::size_t, kInputForms> packed = {};  // per thread
  std::size_t lists = 0;                             // who goes where

  std::size_t per_thread() const { return 2 * rows + packed[0] + packed[1] + packed[2]; }
};

struct Workspace {
  std::size_t conv = 0;   // [max_batch_tokens][conv channels]
  std::size_t gates = 0;  // [2][max_batch_tokens][value_heads]
  std::size_t rope = 0;   // cosines and sines
  std::array<std::size_t, kInputForms> packed = {};
  AttentionWorkspace attention;
  ExpertWorkspace experts;
  std::size_t threads = 1;

  std::int64_t bytes() const;  // the padding of each buffer included
};
Workspace cpu_workspace(const ModelSpec& spec, const PoolOptions& pools, const InputWidths& widths,
                        const kernels::KernelTable& kernels, std::size_t threads);

// An activation matrix: rows padded to whole vectors, as CpuBackend::allocate has it.
std::int64_t activation_stride(std::int64_t cols);
std::int64_t activation_bytes(std::int64_t rows, std::int64_t cols);

}  // namespace sterling::backend
