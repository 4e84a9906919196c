// What plan/ says and what the backend holds are the same number, over random shapes, types and sizes.
#include "plan/memory.h"

#include <random>

#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/workspace.h"
#include "kernels/dispatch.h"
#include "plan/cache_shape.h"
#include "plan/capacity.h"
#include "platform/thread_pool.h"

namespace sterling::backend {
namespace {

constexpr int kRounds = 300;

class Random {
 public:
  explicit Random(std::uint32_t seed) : engine_(seed) {}
  std::int32_t from(std::int32_t low, std::int32_t high) {
    return std::uniform_int_distribution<std::int32_t>(low, high)(engine_);
  }
  bool coin() { return from(0, 1) == 1; }

 private:
  std::mt19937 engine_;
};

ModelSpec random_spec(Random& random) {
  ModelSpec spec;
  spec.vocab_size = 32;
  spec.hidden_size = 16 * random.from(1, 8);
  spec.max_position_embeddings = 1 << random.from(5, 12);
  const int kind = random.from(0, 2);  // all full, hybrid, all linear
  const std::int32_t layers = random.from(1, 9);
  for (std::int32_t i = 0; i < layers; ++i) {
    const bool linear = kind == 2 || (kind == 1 && i % 4 != 3);
    spec.layers.push_back(linear ? LayerKind::kLinearAttention : LayerKind::kFullAttention);
  }
  spec.attention.kv_heads = random.from(1, 6);
  spec.attention.heads = spec.attention.kv_heads * random.from(1, 4);
  spec.attention.head_dim = 2 * random.from(1, 64);  // also such that V needs padding
  spec.attention.rope.rotary_dim = spec.attention.head_dim;
  if (spec.count(LayerKind::kLinearAttention) > 0) {
    const std::int32_t key_heads = random.from(1, 4);
    spec.gdn =
        GdnSpec{key_heads, key_heads * random.from(1, 4), random.from(1, 40), random.from(1, 40), random.from(2, 5)};
  }
  if (random.coin()) {
    spec.moe = MoeSpec{random.from(2, 9), 2, 16 * random.from(1, 4), 0, true};
    spec.moe_layers.assign(spec.layers.size(), true);
  } else {
    spec.intermediate_size = 16 * random.from(1, 8);
  }
  return spec;
}

struct Subject {
  ModelSpec spec;
  PoolOptions pools;
  Compute compute = Compute::kBf16;
};

Subject random_subject(Random& random) {
  Subject subject;
  subject.spec = random_spec(random);
  subject.compute = random.coin() ? Compute::kBf16 : Compute::kFp32;
  subject.pools.kv_blocks = random.from(1, 200);
  subject.pools.state_slots = subject.spec.gdn ? random.from(1, 6) : 0;
  subject.pools.max_batch_tokens = random.from(1, 64);
  subject.pools.max_batch_slices = random.from(1, 4);
  subject.pools.max_sequence_tokens = random.from(1, 3000);
  const auto type = [&random] {
    return plan::kKvTypes[static_cast<std::size_t>(
        random.from(0, static_cast<std::int32_t>(plan::kKvTypes.size()) - 1))];
  };
  subject.pools.kv = plan::KvFormat{type(), type()};
  return subject;
}

TEST(PlannedMemory, EqualsTheAllocators) {
  auto threads = platform::ThreadPool::create({.threads = 2, .pin_cpus = {}});
  ASSERT_TRUE(threads.ok());
  const auto kernels = kernels::select("auto");
  ASSERT_TRUE(kernels.ok());
  Random random(20261201);
  for (int round = 0; round < kRounds; ++round) {
    const Subject subject = random_subject(random);
    const ModelSpec& spec = subject.spec;
    SCOPED_TRACE(testing::Message() << "round " << round << ", KV " << plan::kv_format_name(*subject.pools.kv));
    const auto backend = make_cpu_backend({subject.compute, *kernels, threads->get()});
    if (spec.count(LayerKind::kFullAttention) > 0) {
      ASSERT_TRUE(backend->add_rope(spec.attention.rope).ok());
    }
    ASSERT_TRUE(backend->configure(spec, subject.pools).ok());

    const std::int64_t layers = spec.count(LayerKind::kFullAttention);
    const std::int64_t pool = subject.pools.kv_blocks * plan::kv_block_layer_bytes(spec, *subject.pools.kv) * layers;
    EXPECT_EQ(backend->kv_pool_bytes(), pool);
    EXPECT_EQ(backend->state_pool_bytes(), subject.pools.state_slots * plan::state_bytes_per_sequence(spec));
    EXPECT_EQ(backend->workspace_bytes(), cpu_workspace(spec, subject.pools, {}, **kernels, 2).bytes());

    // What `sterling plan` prints for a pool of this size.
    plan::CapacityRequest request;
    request.shape = plan::cache_shape(spec);
    request.spec = &spec;
    request.contexts = {1, 16, 17};
    request.kv_memory = std::max<std::int64_t>(pool, 1);
    const auto capacity = plan::plan_capacity(request, plan::kv_storage(*subject.pools.kv), subject.pools.kv);
    ASSERT_TRUE(capacity.ok());
    EXPECT_EQ(capacity->state_bytes_per_sequence, plan::state_bytes_per_sequence(spec));
    EXPECT_EQ(*capacity->kv_bytes_per_token * plan::kBlockTokens * subject.pools.kv_blocks, backend->kv_pool_bytes());
    if (layers > 0) {
      EXPECT_EQ(capacity->kv_tokens, std::int64_t{subject.pools.kv_blocks} * plan::kBlockTokens);
      EXPECT_EQ(capacity->concurrency[1].sequences, subject.pools.kv_blocks);
      EXPECT_EQ(capacity->concurrency[2].sequences, subject.pools.kv_blocks / 2);
    }
  }
}

}  // namespace
}  // namespace sterling::backend
