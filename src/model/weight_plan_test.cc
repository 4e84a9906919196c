// The plan of a checkpoint's weights is what loading arrives at, to the byte: every checkpoint of tests/golden (each family and stored
// format) and the real GGUF model, in both computes.
#include "model/weight_plan.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "formats/test_support.h"
#include "kernels/dispatch.h"
#include "model/model.h"
#include "platform/thread_pool.h"

namespace sterling::model {
namespace {

std::vector<std::filesystem::path> checkpoints() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(STERLING_SOURCE_DIR "/tests/golden")) {
    if (entry.is_directory()) paths.push_back(entry.path() / "checkpoint");
  }
  std::sort(paths.begin(), paths.end());
  if (const std::string gguf = STERLING_TEST_MODEL; !gguf.empty()) paths.emplace_back(gguf);
  return paths;
}

class Planning : public testing::TestWithParam<backend::Compute> {};

TEST_P(Planning, EqualsWhatLoadingTakes) {
  platform::ThreadPool::Options options;
  options.threads = 2;
  const auto pool = std::move(*platform::ThreadPool::create(options));
  const auto sizes = backend::cpu_weight_sizes(GetParam());
  const auto paths = checkpoints();
  ASSERT_GE(paths.size(), 15U);
  for (const std::filesystem::path& path : paths) {
    SCOPED_TRACE(path.string());
    const auto checkpoint = formats::Checkpoint::open(path);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    const auto plan = plan_weights(*checkpoint, *sizes);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    const auto backend = backend::make_cpu_backend({GetParam(), *kernels::select("scalar"), pool.get()});
    const auto model = Model::load(*checkpoint, *backend, {});
    ASSERT_TRUE(model.ok()) << model.error().message;
    EXPECT_EQ(plan->packed_bytes, backend->weights().bytes);

    std::int64_t largest = 0;
    std::int64_t all = 0;
    for (const TensorView& tensor : checkpoint->tensors()) {
      largest = std::max(largest, static_cast<std::int64_t>(tensor.data.size()));
      all += static_cast<std::int64_t>(tensor.data.size());
    }
    EXPECT_GT(plan->largest_source_bytes, 0);
    EXPECT_LE(plan->largest_source_bytes, all);
    // A dense model's largest tensor is in use alone; of a tensor that holds all experts, one slice is.
    if (!checkpoint->config().contains("num_experts") && !checkpoint->config().contains("text_config")) {
      EXPECT_GE(plan->largest_source_bytes, largest);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Computes, Planning, testing::Values(backend::Compute::kBf16, backend::Compute::kFp32),
                         [](const auto& test) { return test.param == backend::Compute::kBf16 ? "Bf16" : "Fp32"; });

TEST(PlanningRefuses, ConfigurationAlone) {
  const formats::TemporaryFolder folder;
  std::filesystem::copy_file(STERLING_SOURCE_DIR "/tests/golden/llama/checkpoint/config.json",
                             folder.path() / "config.json");
  const auto checkpoint = formats::Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  const auto plan = plan_weights(*checkpoint, *backend::cpu_weight_sizes(backend::Compute::kBf16));
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace sterling::model
