// Memory while weights are loaded: what the process holds at most stays within the plan. Checkpoints of some hundred MB, made here.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "formats/checkpoint.h"
#include "formats/test_support.h"
#include "kernels/dispatch.h"
#include "lab/synth.h"
#include "model/model.h"
#include "model/weight_plan.h"
#include "platform/process_memory.h"
#include "platform/thread_pool.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define STERLING_SANITIZED 1
#endif
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define STERLING_SANITIZED 1
#endif
#endif

namespace sterling::lab {
namespace {

constexpr std::size_t kThreads = 2;
constexpr std::int64_t kMiB = std::int64_t{1} << 20;

// Besides the plan: a panel's rows per thread on their way (16 rows of the widest matrix, FP32 and as stored), the list of handles, the
// allocator's own pages, and what the kernel maps in around a page that was asked for.
constexpr std::int64_t kWidest = 8192;
constexpr std::int64_t kAllowance = kThreads * 16 * kWidest * 8 + 8 * kMiB;

struct Case {
  const char* name;
  const char* config;
  WeightTarget weights;
};

constexpr const char* kDense = R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 16000,
  "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 2, "num_attention_heads": 16, "num_key_value_heads": 4,
  "head_dim": 128, "rms_norm_eps": 1e-6, "hidden_act": "silu", "max_position_embeddings": 512, "rope_theta": 1000000.0,
  "attention_bias": false, "tie_word_embeddings": false, "torch_dtype": "bfloat16"})";
constexpr const char* kExperts =
    R"({"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "vocab_size": 16000,
  "hidden_size": 1024, "intermediate_size": 4096, "moe_intermediate_size": 768, "num_experts": 64, "num_experts_per_tok": 4,
  "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [], "num_hidden_layers": 3, "num_attention_heads": 16,
  "num_key_value_heads": 4, "head_dim": 64, "rms_norm_eps": 1e-6, "hidden_act": "silu", "max_position_embeddings": 512,
  "rope_theta": 1000000.0, "attention_bias": false, "tie_word_embeddings": false, "torch_dtype": "bfloat16"})";

std::unique_ptr<platform::ThreadPool> make_pool() {
  platform::ThreadPool::Options options;
  options.threads = kThreads;
  return std::move(*platform::ThreadPool::create(options));
}

class LoadPeak : public testing::TestWithParam<Case> {};

TEST_P(LoadPeak, StaysWithinThePlan) {
#ifdef STERLING_SANITIZED
  GTEST_SKIP() << "a sanitizer's shadow memory counts as resident";
#endif
  const auto pool = make_pool();
  const formats::TemporaryFolder folder;
  SynthOptions options;
  options.config = folder.write("config.json", GetParam().config);
  options.out = folder.path() / "model";
  options.request.weights = GetParam().weights;
  options.request.version = "test";
  options.shard_bytes = 100 * kMiB;
  const auto made = synthesize(options, *pool);
  ASSERT_TRUE(made.ok()) << made.error().message;
  ASSERT_GT(made->bytes, 100 * kMiB);

  const auto checkpoint = formats::Checkpoint::open(options.out);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  const auto plan = model::plan_weights(*checkpoint, *backend::cpu_weight_sizes(backend::Compute::kBf16));
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  // The bound has to be one: what loading without letting go would take lies well above.
  ASSERT_GT(plan->packed_bytes + made->bytes, plan->peak_bytes() + 2 * kAllowance);

  const kernels::KernelTable* const kernels = *kernels::select("scalar");
  const auto backend = backend::make_cpu_backend({backend::Compute::kBf16, kernels, pool.get()});
  if (!platform::reset_peak_resident()) GTEST_SKIP() << "/proc/self/clear_refs can't be written here";
  const auto before = platform::read_process_memory();
  ASSERT_TRUE(before.ok()) << before.error().message;
  const auto model = model::Model::load(*checkpoint, *backend, {});
  ASSERT_TRUE(model.ok()) << model.error().message;
  const auto after = platform::read_process_memory();
  ASSERT_TRUE(after.ok());

  EXPECT_EQ(backend->weights().bytes, plan->packed_bytes);
  const std::int64_t peak = after->peak_resident - before->resident;
  EXPECT_LE(peak, plan->peak_bytes() + kAllowance);
  EXPECT_GE(peak, plan->packed_bytes * 9 / 10);  // it was measured at all
  RecordProperty("checkpoint_bytes", std::to_string(made->bytes));
  RecordProperty("planned_packed_bytes", std::to_string(plan->packed_bytes));
  RecordProperty("planned_peak_bytes", std::to_string(plan->peak_bytes()));
  RecordProperty("measured_peak_bytes", std::to_string(peak));
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, LoadPeak,
                         testing::Values(Case{"DenseBf16", kDense, WeightTarget::kBf16},
                                         Case{"DenseFp8Block", kDense, WeightTarget::kFp8Block},
                                         Case{"ExpertsNvfp4", kExperts, WeightTarget::kNvfp4}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace sterling::lab
