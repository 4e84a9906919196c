// What the benchmarks run: kernels on realistic shapes, shared out to a thread pool as the CPU backend does. Data is random and finite.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/contract.h"
#include "platform/aligned_buffer.h"
#include "platform/thread_pool.h"

namespace sterling::bench {

enum class Weights { kBf16, kF32, kFp8, kFp8Block, kNvfp4, kMxfp4, kMxfp8 };
// "bf16", "f32", "fp8", …
const char* weights_name(Weights type);

// y = x W^T on `layers` matrices of [n][k], one after the other.
class GemmWorkload {
 public:
  GemmWorkload(const kernels::KernelTable& table, platform::ThreadPool& pool, Weights type, int m, int k, int n,
               int layers);
  void run();
  double flops() const { return 2.0 * m_ * k_ * n_ * layers_; }
  double bytes() const { return static_cast<double>(w_.size()); }

 private:
  const kernels::KernelTable& table_;
  platform::ThreadPool& pool_;
  Weights type_;
  int m_, k_, n_, layers_;
  std::size_t layer_bytes_;
  platform::AlignedBuffer w_, x_, out_;
};

// `sequences` KV heads, each with its own cache of `tokens` tokens, one call of m query rows each, span by span and merged.
class AttentionWorkload {
 public:
  AttentionWorkload(const kernels::KernelTable& table, platform::ThreadPool& pool, int sequences, int tokens, int m,
                    int head_dim, kernels::KvCode code = kernels::KvCode::kBf16);
  void run();
  double flops() const { return 4.0 * sequences_ * tokens_ * m_ * head_dim_; }
  double bytes() const { return static_cast<double>(kv_.size()); }

 private:
  const kernels::KernelTable& table_;
  platform::ThreadPool& pool_;
  void fill_kv();
  int sequences_, tokens_, m_, head_dim_, spans_;
  kernels::KvCode code_;
  platform::AlignedBuffer kv_, q_, partial_, scratch_;
  std::vector<std::int32_t> visible_;
  std::size_t scratch_bytes_, partial_floats_;
};

// `heads` value heads of 128 x 128 (or other) states, `tokens` tokens each.
class GdnWorkload {
 public:
  GdnWorkload(const kernels::KernelTable& table, platform::ThreadPool& pool, int heads, int tokens, int key_dim,
              int value_dim);
  void run();
  double token_heads() const { return static_cast<double>(heads_) * tokens_; }
  double bytes() const { return 2.0 * static_cast<double>(state_.size()); }

 private:
  const kernels::KernelTable& table_;
  platform::ThreadPool& pool_;
  int heads_, tokens_, key_dim_, value_dim_;
  platform::AlignedBuffer state_, qkv_, out_, gates_;
};

// Sums a buffer: nothing but reading.
class ReadWorkload {
 public:
  ReadWorkload(platform::ThreadPool& pool, std::size_t bytes);
  void run();
  double bytes() const { return static_cast<double>(buffer_.size()); }
  std::uint64_t checksum() const { return checksum_; }

 private:
  platform::ThreadPool& pool_;
  platform::AlignedBuffer buffer_;
  std::uint64_t checksum_ = 0;
};

double seconds_now();

}  // namespace sterling::bench
