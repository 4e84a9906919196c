// Worked examples of other engines: two real logs (27B under SGLang, 35B-A3B under vLLM) and the arithmetic of the 397B at TP 8.
#include "plan/engines/rules.h"

#include <gtest/gtest.h>

#include "plan/capacity.h"

namespace sterling::plan {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

CacheShape hybrid(std::int64_t heads, std::int64_t kv_heads, std::int64_t full, std::int64_t linear,
                  std::int64_t value_heads) {
  CacheShape shape;
  shape.heads = heads;
  shape.max_position_embeddings = 262144;
  shape.attention = {{full, kv_heads, 256, 256, false, 0}};
  shape.state = RecurrentCache{linear, 16, value_heads, 128, 128, 3};
  return shape;
}

CacheShape qwen_27b() {
  return hybrid(24, 4, 16, 48, 48);
}
CacheShape qwen_35b() {
  return hybrid(16, 2, 10, 30, 32);
}
CacheShape qwen_397b() {
  return hybrid(32, 2, 15, 45, 64);
}

KvStorage bf16() {
  return kv_storage({KvType::kBf16, KvType::kBf16});
}
KvStorage fp8() {
  return kv_storage({KvType::kFp8E4m3, KvType::kFp8E4m3});
}

double figure(const Capacity& capacity, std::string_view name) {
  for (const EngineFigure& figure : capacity.figures) {
    if (figure.name == name) return figure.value;
  }
  ADD_FAILURE() << "no figure " << name;
  return -1;
}

CapacityRequest request_397b(Engine engine) {
  CapacityRequest request;
  request.engine = engine;
  request.tp = 8;
  request.shape = qwen_397b();
  request.contexts = {262144};
  return request;
}

TEST(SglangRule, SlotsOf27b) {
  // 360 slots: the allocated pool has one more, 50.77 GiB of recurrent state and 0.99 GiB of convolution windows.
  const CacheShape shape = qwen_27b();
  const std::int64_t recurrent = state_bytes_per_layer(*shape.state, 0) * shape.state->layers;
  EXPECT_EQ(recurrent, std::int64_t{144} << 20);
  EXPECT_EQ(state_bytes_per_sequence(shape, 2), 153'944'064);
  EXPECT_NEAR(static_cast<double>(361 * recurrent) / kGiB, 50.77, 0.005);
  EXPECT_NEAR(static_cast<double>(361 * (state_bytes_per_sequence(shape, 2) - recurrent)) / kGiB, 0.99, 0.005);
}

TEST(SglangRule, Split397b) {
  // 139.0 GiB free, mem_fraction_static 0.85, 93.9 GiB of BF16 weights per rank.
  for (const auto& [weights, slots, bf16_tokens, fp8_tokens, cap, cap_extra] :
       {std::tuple{93.9, 513, 893'378, 1'786'757, 171, 102}, std::tuple{47.0, 1507, 2'618'304, 5'236'608, 502, 301}}) {
    CapacityRequest request = request_397b(Engine::kSglang);
    request.memory_bytes = 139 * kGiB;
    request.memory_fraction = 0.85;
    request.weights_bytes = static_cast<std::int64_t>(weights * static_cast<double>(kGiB));
    for (const auto& [storage, tokens] : {std::pair{bf16(), bf16_tokens}, std::pair{fp8(), fp8_tokens}}) {
      const auto capacity = plan_capacity(request, storage, {});
      ASSERT_TRUE(capacity.ok());
      EXPECT_EQ(capacity->state_bytes_per_sequence, 24'007'680);
      EXPECT_EQ(figure(*capacity, "max_mamba_cache_size"), slots);
      EXPECT_EQ(capacity->kv_tokens, tokens) << storage.name;
      EXPECT_EQ(figure(*capacity, "running_cap"), cap);
      EXPECT_EQ(figure(*capacity, "running_cap_with_extra_buffer"), cap_extra);
      EXPECT_EQ(capacity->fits, true);
    }
  }
}

TEST(SglangRule, RadixCacheOff) {
  CapacityRequest request = request_397b(Engine::kSglang);
  request.memory_bytes = 139 * kGiB;
  request.weights_bytes = 47 * kGiB;
  request.radix_cache = false;
  request.max_num_seqs = 100;
  request.contexts = {1024};
  const auto capacity = plan_capacity(request, bf16(), {});
  ASSERT_TRUE(capacity.ok());
  EXPECT_EQ(figure(*capacity, "max_mamba_cache_size"), 100);
  EXPECT_EQ(capacity->concurrency[0].sequences, 100);
}

TEST(SglangRule, SlidingWindows) {
  // gpt-oss-120b: 36 layers, every other with a window of 128, 8 KV heads of 64.
  CacheShape shape;
  shape.heads = 64;
  shape.attention = {{18, 8, 64, 64, false, 0}, {18, 8, 64, 64, false, 128}};
  EXPECT_EQ(kv_bytes_per_token(shape, bf16()), 36'864);
  EXPECT_EQ(window_bytes_per_sequence(shape, bf16()), 18 * 2048 * 128);
  const SglangWindows windows = sglang_windows(36'864 + 29'491, 36'864, 36'864);
  EXPECT_EQ(windows.full_tokens, 0);  // one byte short of a token of each
  const SglangWindows many = sglang_windows(1000 * 66'355 + 200, 36'864, 36'864);
  EXPECT_EQ(many.full_tokens, 1000);
  EXPECT_EQ(many.window_tokens, 800);
}

TEST(VllmRule, Log35b) {
  // "Setting attention block size to 2096 tokens", "Available KV cache memory: 1.28 GiB", "GPU KV cache size: 33,536 tokens", "Maximum concurrency for 65,536 tokens
  // per request: 1.68x".
  CapacityRequest request;
  request.engine = Engine::kVllm;
  request.shape = qwen_35b();
  request.kv_memory = static_cast<std::int64_t>(1.28 * static_cast<double>(kGiB));
  request.contexts = {65536};
  const auto capacity = plan_capacity(request, fp8(), {});
  ASSERT_TRUE(capacity.ok());
  EXPECT_EQ(figure(*capacity, "block_size"), 2096);
  EXPECT_EQ(figure(*capacity, "page_bytes"), 2'146'304);
  EXPECT_EQ(figure(*capacity, "num_gpu_blocks"), 64);
  EXPECT_EQ(figure(*capacity, "gpu_kv_cache_size_older"), 33'536);
  EXPECT_NEAR(figure(*capacity, "max_concurrency"), 1.68, 0.005);
  EXPECT_EQ(capacity->concurrency[0].sequences, 1);
}

TEST(VllmRule, Pages397b) {
  CapacityRequest request = request_397b(Engine::kVllm);
  request.kv_memory = 20 * kGiB;
  const auto wide = plan_capacity(request, bf16(), {});
  const auto narrow = plan_capacity(request, fp8(), {});
  ASSERT_TRUE(wide.ok() && narrow.ok());
  for (const Capacity& capacity : {*wide, *narrow}) {
    EXPECT_EQ(figure(capacity, "page_bytes"), 540'672);
    EXPECT_EQ(figure(capacity, "layer_groups"), 4);
    EXPECT_EQ(figure(capacity, "num_gpu_blocks"), 2647);
  }
  EXPECT_EQ(figure(*wide, "block_size"), 528);
  EXPECT_EQ(figure(*narrow, "block_size"), 1056);
  EXPECT_NEAR(figure(*wide, "max_concurrency"), 5.26, 0.005);
  EXPECT_NEAR(figure(*narrow, "max_concurrency"), 10.38, 0.005);
  EXPECT_EQ(figure(*wide, "gpu_kv_cache_size_older"), 349'008);
  EXPECT_EQ(figure(*narrow, "gpu_kv_cache_size_older"), 698'016);
  EXPECT_EQ(figure(*wide, "gpu_kv_cache_size_newer"), 1'379'513);
  EXPECT_EQ(figure(*narrow, "gpu_kv_cache_size_newer"), 2'721'157);
  const VllmPages pages = vllm_pages(*rank_slice(qwen_397b(), 8), bf16());
  EXPECT_EQ(pages.state_page_bytes, 533'504);
  EXPECT_EQ(pages.block_bytes(), 8'110'080);
}

TEST(VllmRule, PlainAttention) {
  // Llama-3.1-8B: pages of 16 tokens, one group of 32 layers.
  CapacityRequest request;
  request.engine = Engine::kVllm;
  request.shape.heads = 32;
  request.shape.attention = {{32, 8, 128, 128, false, 0}};
  request.kv_memory = 10 * kGiB;
  request.contexts = {8192};
  const auto capacity = plan_capacity(request, bf16(), {});
  ASSERT_TRUE(capacity.ok());
  EXPECT_EQ(figure(*capacity, "num_gpu_blocks"), 10 * kGiB / (16 * 4096 * 32));
  EXPECT_EQ(capacity->kv_tokens, 10 * kGiB / (4096 * 32));
  EXPECT_EQ(capacity->concurrency[0].sequences, 10);
}

TEST(SterlingRule, PoolsOfServe) {
  PoolWish wish;
  wish.block_bytes = 1000;
  wish.state_bytes = 50;
  wish.sequences = 4;
  wish.max_model_len = 1600;
  wish.available = 100'200;
  EXPECT_EQ(size_pools(wish).state_slots, 4);
  EXPECT_EQ(size_pools(wish).kv_blocks, 50);  // half of what the state leaves
  wish.available = 10'000'000;
  EXPECT_EQ(size_pools(wish).kv_blocks, 400);  // four sequences of the model's length
  wish.max_model_len = 1 << 30;
  wish.available = std::int64_t{1} << 50;
  EXPECT_EQ(size_pools(wish).kv_blocks, kMaxAutoTokens / 16);
  wish.kv_memory = 7999;
  EXPECT_EQ(size_pools(wish).kv_blocks, 7);
  wish.kv_memory.reset();
  wish.available = 100;
  EXPECT_EQ(size_pools(wish).kv_blocks, 0);
}

}  // namespace
}  // namespace sterling::plan
