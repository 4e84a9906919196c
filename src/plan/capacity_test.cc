#include "plan/capacity.h"

#include <gtest/gtest.h>

#include "plan/engines/rules.h"
#include "plan/hardware.h"
#include "plan/memory.h"

namespace sterling::plan {
namespace {

// Qwen3.5-397B-A17B.
ModelSpec spec_397b() {
  ModelSpec spec;
  spec.max_position_embeddings = 262144;
  for (int layer = 0; layer < 60; ++layer) {
    spec.layers.push_back(layer % 4 == 3 ? LayerKind::kFullAttention : LayerKind::kLinearAttention);
  }
  spec.attention.heads = 32;
  spec.attention.kv_heads = 2;
  spec.attention.head_dim = 256;
  spec.gdn = GdnSpec{16, 64, 128, 128, 4};
  return spec;
}

constexpr KvFormat kWide{KvType::kBf16, KvType::kBf16};
constexpr KvFormat kNarrow{KvType::kFp8E4m3, KvType::kFp8E4m3};

CapacityRequest request_of(const ModelSpec& spec) {
  CapacityRequest request;
  request.tp = 8;
  request.shape = cache_shape(spec);
  request.spec = &spec;
  request.contexts = {32768, 131072, 262144};
  request.kv_memory = 18'683'107'737;  // 17.4 GiB
  return request;
}

TEST(Capacity, WorkedExample) {
  const ModelSpec spec = spec_397b();
  const CapacityRequest request = request_of(spec);
  struct Row {
    KvFormat format;
    std::int64_t per_token, unique, tokens;
    std::vector<std::int64_t> sequences, with_state;
  };
  // With state: 17.4 GiB / (context x bytes + 24,422,400).
  for (const Row& row : {Row{kWide, 15360, 30720, 1'216'348, {37, 9, 4}, {35, 9, 4}},
                         Row{kNarrow, 7680, 15360, 2'432'696, {74, 18, 9}, {67, 18, 9}}}) {
    const auto capacity = plan_capacity(request, kv_storage(row.format), row.format);
    ASSERT_TRUE(capacity.ok());
    EXPECT_EQ(capacity->kv_heads, 1);
    EXPECT_EQ(capacity->kv_bytes_per_token, row.per_token);
    EXPECT_EQ(capacity->unique_kv_bytes_per_token, row.unique);
    EXPECT_EQ(capacity->state_bytes_per_sequence, 24'422'400);
    EXPECT_EQ(capacity->kv_tokens, row.tokens);
    ASSERT_EQ(capacity->concurrency.size(), 3U);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(capacity->concurrency[i].sequences, row.sequences[i]);
      EXPECT_EQ(capacity->concurrency[i].sequences_with_state, row.with_state[i]);
      EXPECT_EQ(capacity->concurrency[i].bound_by, "kv");
    }
    EXPECT_EQ(capacity->fits, true);
  }
}

TEST(Capacity, StateBoundsWhereMemoryIsGiven) {
  const ModelSpec spec = spec_397b();
  CapacityRequest request = request_of(spec);
  request.weights_bytes = 1000;
  request.workspace_bytes = 500;
  request.memory_bytes = *request.kv_memory + 1500 + 5 * 24'422'400;
  auto capacity = plan_capacity(request, kv_storage(kWide), kWide);
  ASSERT_TRUE(capacity.ok());
  EXPECT_EQ(capacity->concurrency[0].sequences, 5);
  EXPECT_EQ(capacity->concurrency[0].bound_by, "state");
  EXPECT_EQ(capacity->concurrency[2].sequences, 4);
  EXPECT_EQ(capacity->concurrency[2].bound_by, "kv");
  EXPECT_FALSE(capacity->concurrency[0].sequences_with_state.has_value());
  request.max_num_seqs = 3;
  capacity = plan_capacity(request, kv_storage(kWide), kWide);
  EXPECT_EQ(capacity->concurrency[0].sequences, 3);
  EXPECT_EQ(capacity->concurrency[0].bound_by, "max_num_seqs");
  request.memory_bytes = *request.kv_memory + 1500;  // no state fits
  capacity = plan_capacity(request, kv_storage(kWide), kWide);
  EXPECT_EQ(capacity->fits, false);
  EXPECT_FALSE(capacity->fits_reason.empty());
}

TEST(Capacity, WithoutWeightsNothingIsPromised) {
  const ModelSpec spec = spec_397b();
  CapacityRequest request = request_of(spec);
  request.kv_memory.reset();
  request.memory_bytes = std::int64_t{96} << 30;
  for (const Engine engine : {Engine::kSterling, Engine::kSglang, Engine::kVllm}) {
    request.engine = engine;
    const auto capacity = plan_capacity(request, kv_storage(kWide), kWide);
    ASSERT_TRUE(capacity.ok());
    EXPECT_FALSE(capacity->fits.has_value());
    EXPECT_FALSE(capacity->kv_tokens.has_value());
    EXPECT_EQ(capacity->concurrency.size(), 3U);
    EXPECT_EQ(capacity->kv_bytes_per_token, 15360);
  }
}

TEST(Capacity, WithoutStateOnlyThePoolIsCounted) {
  CacheShape shape = cache_shape(spec_397b());
  shape.state.reset();
  shape.state_known = false;
  for (const Engine engine : {Engine::kSterling, Engine::kSglang, Engine::kVllm}) {
    CapacityRequest request;
    request.engine = engine;
    request.tp = 8;
    request.shape = shape;
    request.contexts = {32768};
    request.kv_memory = 18'683'107'737;
    const auto pool = plan_capacity(request, kv_storage(kWide), kWide);
    EXPECT_FALSE(pool->state_bytes_per_sequence.has_value());
    EXPECT_EQ(pool->concurrency[0].sequences.has_value(), engine != Engine::kVllm);
    request.memory_bytes = std::int64_t{96} << 30;
    request.weights_bytes = 1000;
    const auto memory = plan_capacity(request, kv_storage(kWide), kWide);
    EXPECT_FALSE(memory->concurrency[0].sequences.has_value());
    EXPECT_FALSE(memory->fits.has_value());
  }
}

TEST(Capacity, AskedContextHasToFit) {
  const ModelSpec spec = spec_397b();
  CapacityRequest request = request_of(spec);
  request.kv_memory = std::int64_t{1} << 30;
  request.contexts = {32768, 262144};
  EXPECT_EQ(plan_capacity(request, kv_storage(kWide), kWide)->fits, true);
  request.contexts_asked = true;
  EXPECT_EQ(plan_capacity(request, kv_storage(kWide), kWide)->fits, false);
}

TEST(Capacity, RanksThatDoNotDivide) {
  const ModelSpec spec = spec_397b();
  CapacityRequest request = request_of(spec);
  for (const std::int32_t tp : {3, 5, 64}) {
    request.tp = tp;
    const auto capacity = plan_capacity(request, kv_storage(kWide), kWide);
    ASSERT_FALSE(capacity.ok()) << tp;
    EXPECT_EQ(capacity.error().where, "--tp");
  }
}

TEST(Capacity, LatentCacheIsWholeOnEveryRank) {
  // DeepSeek-V3: 512 + 64 in 61 layers.
  CapacityRequest request;
  request.engine = Engine::kSglang;
  request.shape.heads = 128;
  request.shape.attention = {{61, 1, 576, 0, true, 0}};
  for (const std::int32_t tp : {1, 8}) {
    request.tp = tp;
    EXPECT_EQ(plan_capacity(request, kv_storage(kWide), {})->kv_bytes_per_token, 70'272);
    EXPECT_EQ(plan_capacity(request, kv_storage(kNarrow), {})->kv_bytes_per_token, 35'136);
  }
}

TEST(Capacity, FourBitPages) {
  for (const KvStorage& storage : kv_storages(Engine::kSglang)) {
    if (storage.name != "fp4_e2m1") continue;
    EXPECT_EQ(kv_bytes_per_token_layer({1, 1, 256, 256, false, 0}, storage), 288);  // 0.5625 bytes an element
    return;
  }
  FAIL();
}

TEST(Capacity, ScalesPerTokenAreCounted) {
  const KvFormat format{KvType::kFp8E4m3Token, KvType::kFp8E4m3Token};
  EXPECT_EQ(kv_bytes_per_token_layer({1, 2, 256, 256, false, 0}, kv_storage(format)), 2 * (256 + 4 + 256 + 4));
}

// The two ways to say how large a cache is agree wherever V needs no padding.
TEST(Capacity, ShapesAgreeWithTheAllocator) {
  const ModelSpec spec = spec_397b();
  for (const std::int32_t tp : {1, 2, 4, 8, 16}) {
    const auto rank = rank_slice(spec, tp);
    const auto shape = rank_slice(cache_shape(spec), tp);
    ASSERT_TRUE(rank.ok() && shape.ok());
    EXPECT_EQ(state_bytes_per_sequence(*rank), state_bytes_per_sequence(*shape, 4));
    EXPECT_EQ(rank->attention.kv_heads, std::max(1, 2 / tp));
    EXPECT_EQ(rank->attention.heads, 32 / tp);
  }
}

TEST(Hardware, Names) {
  ASSERT_NE(find_device("rtx-pro-6000"), nullptr);
  EXPECT_EQ(find_device("rtx-pro-6000")->memory_bytes, std::int64_t{97887} << 20);
  EXPECT_EQ(find_device("NVIDIA GeForce RTX 4090"), find_device("rtx_4090"));
  EXPECT_EQ(find_device("A100"), find_device("a100-80gb"));
  EXPECT_EQ(find_device("NVIDIA H100 80GB")->memory_bytes, std::int64_t{81559} << 20);
  EXPECT_EQ(find_device("h1000"), nullptr);
  EXPECT_EQ(find_device(""), nullptr);
}

TEST(Numbers, Grouped) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(-123456), "-123,456");
  EXPECT_EQ(grouped(24422400), "24,422,400");
}

}  // namespace
}  // namespace sterling::plan
