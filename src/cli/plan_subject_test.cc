// The plan of a checkpoint and what loading it comes to: every family among the golden sets, every stored format.
#include "cli/plan_subject.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "cli/memory_ledger.h"
#include "cli/runtime.h"

namespace sterling::cli {
namespace {

std::vector<std::filesystem::path> golden_checkpoints() {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(STERLING_SOURCE_DIR "/tests/golden")) {
    if (std::filesystem::exists(entry.path() / "checkpoint" / "config.json"))
      found.push_back(entry.path() / "checkpoint");
  }
  return found;
}

TEST(PlanSubject, EqualsWhatLoadingComesTo) {
  const auto checkpoints = golden_checkpoints();
  ASSERT_GE(checkpoints.size(), 15U);
  for (const auto& path : checkpoints) {
    SCOPED_TRACE(path.string());
    for (const backend::Compute compute : {backend::Compute::kBf16, backend::Compute::kFp32}) {
      RuntimeOptions options;
      options.model = path.string();
      options.compute = compute;
      options.threads = 2;
      auto runtime = load_runtime(options);
      ASSERT_TRUE(runtime.ok()) << runtime.error().message;
      const auto pools = plan_pools(*runtime, {.max_model_len = {},
                                               .kv_cache_memory = std::size_t{1} << 20,
                                               .max_num_seqs = 3,
                                               .max_num_batched_tokens = 33});
      ASSERT_TRUE(pools.ok()) << pools.error().message;
      ASSERT_TRUE(runtime->model->configure(*pools).ok());
      for (const LedgerRow& row : read_ledger(*runtime, *pools)) EXPECT_EQ(row.planned, row.actual) << row.what;
      if (compute == backend::Compute::kFp32) continue;
      const PlanSubject subject = read_plan_subject(*runtime->checkpoint);
      EXPECT_EQ(rank_weights(subject, plan::Engine::kSterling, 1).bytes, runtime->backend->weights().bytes);
      EXPECT_EQ(subject.shape.max_position_embeddings, runtime->model->spec().max_position_embeddings);
      EXPECT_EQ(subject.widths.widest, runtime->input_widths.widest);
    }
  }
}

}  // namespace
}  // namespace sterling::cli
